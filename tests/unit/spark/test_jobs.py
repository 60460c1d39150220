"""Several jobs at once: what becomes of the others when one fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from lakemark_spark import jobs


class _Properties:
    def clone(self) -> _Properties:
        return self


def _spark(cores: int) -> SparkSession:
    """A classic session, as far as ``at_once`` looks at it."""
    context = SimpleNamespace(getLocalProperties=_Properties, setLocalProperties=lambda _: None)
    here = SimpleNamespace(defaultParallelism=cores, _jsc=SimpleNamespace(sc=lambda: context))
    return cast(SparkSession, SimpleNamespace(_jvm=None, sparkContext=here))


def test_answers_have_the_order_of_the_calls() -> None:
    second = threading.Event()

    def first() -> str:
        assert second.wait(30)
        return "first"

    calls: list[Callable[[], str]] = [first, lambda: str(second.set() or "second")]
    assert jobs.at_once(_spark(1), calls) == ["first", "second"]


def test_after_a_failure_no_other_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[Future[Any]] = []

    class Pool(ThreadPoolExecutor):
        def submit(self, *given: Any, **more: Any) -> Future[Any]:
            submitted.append(super().submit(*given, **more))
            return submitted[-1]

    monkeypatch.setattr(jobs, "ThreadPoolExecutor", Pool)
    begun: list[str] = []
    nothing = threading.Event()

    def failing() -> None:
        begun.append("failing")
        raise OSError("no room")

    def busy() -> None:
        """For as long as the last call may still begin."""
        begun.append("busy")
        for _ in range(3_000):
            if len(submitted) == 4 and submitted[3].cancelled():
                return
            nothing.wait(0.01)

    with pytest.raises(OSError, match="no room"):
        jobs.at_once(_spark(1), [busy, failing, busy, lambda: begun.append("late")])
    assert "late" not in begun
