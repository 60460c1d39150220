"""Several jobs of one Spark session at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import Any, Final, TypeVar, cast

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from lakemark_spark.sessions import is_connect

AT_ONCE_MAX: Final = 32
"""Each waits in a thread of its own, and is planned in the driver."""

_CORES_ELSEWHERE: Final = 2
"""Over Spark Connect, which does not tell how many cores there are."""

T = TypeVar("T")


def at_once(spark: SparkSession, calls: Iterable[Callable[[], T]]) -> list[T]:
    """What the calls return, in their order. Each is a job of one task or few.

    Two for each of Spark's cores run at a time: some are planned in the driver while the tasks of others run.

    They have the job group, the pool and the tags of the calling thread. If one fails no other one is begun, and its
    error is raised when those that run have ended.
    """
    cores = _CORES_ELSEWHERE if is_connect(spark) else spark.sparkContext.defaultParallelism
    with ThreadPoolExecutor(min(AT_ONCE_MAX, 2 * cores)) as pool:
        running = [pool.submit(_as_here(spark, call)) for call in calls]
        try:
            for one in as_completed(running):
                one.result()
        except BaseException:
            for one in running:
                one.cancel()
            raise
    return [one.result() for one in running]


def _as_here(spark: SparkSession, call: Callable[[], T]) -> Callable[[], T]:
    if is_connect(spark):
        # The checkers know the form for sessions of a classic Spark alone.
        return cast("Callable[[], T]", cast(Any, inheritable_thread_target)(spark)(call))
    context: Any = spark.sparkContext._jsc
    # A copy for each: Spark notes in it which query a thread is at.
    return partial(_with_properties, context, context.sc().getLocalProperties().clone(), call)


def _with_properties(context: Any, properties: Any, call: Callable[[], T]) -> T:
    context.sc().setLocalProperties(properties)
    return call()
