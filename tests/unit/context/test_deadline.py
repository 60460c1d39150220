"""Deadlines of requests: what they stop, and what they do not reach."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark_core.errors import DeadlineExceeded
from lakemark_server.context import deadline
from lakemark_server.context.deadline import NEVER, Deadline, latest, within
from lakemark_server.kv import Conflict, OpenTransaction, Store, Transaction, open_store
from lakemark_server.kv.retry import run_transaction


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/lakemark.db")
    yield opened
    opened.close()


def test_it_is_over_when_its_time_is_or_when_nobody_waits() -> None:
    now = [0.0]
    one = Deadline(5.0, clock=lambda: now[0])
    assert (one.remaining_s(), one.over()) == (5.0, False)
    now[0] = 5.0
    assert (one.remaining_s(), one.over()) == (0.0, True)
    now[0] = 1.0
    one.check()
    one.abandon()
    with pytest.raises(DeadlineExceeded):
        one.check()


def test_an_answer_has_time_to_reach_the_client() -> None:
    assert Deadline.after(1.0).remaining_s() < 0.99
    assert Deadline.after(100.0).remaining_s() > 99.8


def test_the_current_one_is_that_of_the_innermost_block() -> None:
    one, two = Deadline(1.0), Deadline(2.0)
    assert deadline.current() is NEVER
    with within(one):
        with within(two):
            assert deadline.current() is two
        assert deadline.current() is one
    deadline.check()


def test_work_for_several_lasts_until_the_last_is_over() -> None:
    assert latest([Deadline(1.0), Deadline(3.0)]).at_s == 3.0
    assert latest([Deadline(1.0), NEVER]).at_s == NEVER.at_s
    assert latest([]).at_s == NEVER.at_s


def test_a_store_begins_nothing_for_a_request_that_is_over(store: Store) -> None:
    def never(tx: object) -> None:
        raise AssertionError("it was begun")

    with within(Deadline(0.0)):
        with pytest.raises(DeadlineExceeded):
            store.read(never)
        with pytest.raises(DeadlineExceeded):
            store.transact(never)
    store.transact(lambda tx: tx.set(b"a", b"b"))


class _Losing(OpenTransaction):
    def commit(self) -> None:
        raise Conflict("lost")

    def cancel(self) -> None:
        pass


def test_retries_end_when_the_time_is_over() -> None:
    now, attempts, pauses = [0.0], [0], list[float]()

    def body(tx: Transaction) -> None:
        attempts[0] += 1
        now[0] += 1.0

    with within(Deadline(2.5, clock=lambda: now[0])), pytest.raises(DeadlineExceeded):
        run_transaction(_Losing, body, 50, pauses.append)
    assert attempts == [3]
    assert pauses[-1] == 0.0, "there is no time left to sleep"
