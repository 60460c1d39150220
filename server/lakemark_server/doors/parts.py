"""Many small pieces of work on a pool that several statements share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, wait
from itertools import islice
from typing import Final, TypeVar

PART: Final = 64
"""Pieces that a statement has in the pool at a time, so that one with ten thousand files does not hold others up."""

T = TypeVar("T")
R = TypeVar("R")


def in_parts(pool: Executor, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What ``work`` returns for each item, in order.

    Raises the first error, once nothing is worked on any more.
    """
    results: list[R] = []
    rest = iter(items)
    while part := list(islice(rest, PART)):
        running = [pool.submit(work, item) for item in part]
        try:
            results += [one.result() for one in running]
        finally:
            for one in running:
                one.cancel()
            wait(running)
    return results
