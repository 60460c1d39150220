"""Many pieces of work on a pool that several statements share."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakemark_server.doors.parts import PART, in_parts


def test_results_are_in_order() -> None:
    with ThreadPoolExecutor(4) as pool:
        many = range(3 * PART + 1)
        assert in_parts(pool, lambda number: -number, many) == [-number for number in many]
        assert in_parts(pool, str, []) == []


def test_after_an_error_nothing_is_worked_on_any_more() -> None:
    going_on, begun, ended = threading.Event(), list[int](), list[int]()

    def work(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise ValueError("the first")
        going_on.wait(10)
        ended.append(number)

    with ThreadPoolExecutor(2) as pool:
        threading.Timer(0.05, going_on.set).start()
        with pytest.raises(ValueError, match="the first"):
            in_parts(pool, work, range(5 * PART))
        assert sorted(ended) == sorted(set(begun) - {0})
        assert max(begun) < PART


def test_others_get_their_turn() -> None:
    """A small statement does not wait for all files of a large one."""
    small, order, first = threading.Event(), list[str](), threading.Lock()

    def work(number: int) -> None:
        if first.acquire(blocking=False):
            small.set()
        order.append("large")

    with ThreadPoolExecutor(1) as pool:
        large = threading.Thread(target=in_parts, args=(pool, work, range(100 * PART)))
        large.start()
        assert small.wait(10)
        in_parts(pool, lambda _: order.append("small"), [1])
        large.join()
    assert order.index("small") < len(order) - 1
