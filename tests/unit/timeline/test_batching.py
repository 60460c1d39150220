"""Writers of one table that share a batch: which one leads, and which answer each gets. Ordered by events, not time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from lakemark_core.errors import (
    DeadlineExceeded,
    DeadlineUnknown,
    InvalidArgument,
    LakemarkError,
    Overloaded,
    StoreConflict,
)
from lakemark_server.context import deadline
from lakemark_server.context.deadline import Deadline
from lakemark_server.timeline.jobs import batcher as batcher_module
from lakemark_server.timeline.jobs.batcher import BATCH_MAX, Batcher

WAIT_S = 20.0


class Runner:
    """A batch function that stops inside each batch until the test lets it go on."""

    def __init__(self, answer: Callable[[int], int | LakemarkError] = lambda job: job * 10) -> None:
        self.answer = answer
        self.batches: list[tuple[str, list[int]]] = []
        self.entered = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.error: Exception | None = None

    def __call__(self, key: str, jobs: list[int]) -> list[int | LakemarkError]:
        self.batches.append((key, jobs))
        self.entered.release()
        assert self.go.acquire(timeout=WAIT_S)
        if self.error is not None:
            raise self.error
        return [self.answer(job) for job in jobs]


def waiting(batcher: Batcher[str, int, int], key: str, count: int) -> None:
    """Returns when ``count`` jobs wait. There is no event for that, so it polls."""
    for _ in range(1_000_000):
        if len(batcher._queues.get(key, ())) >= count:
            return
        threading.Event().wait(0.0005)
    raise AssertionError("the jobs never came")


@pytest.fixture
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(300)


def queue_behind_a_leader(
    pool: ThreadPoolExecutor, batcher: Batcher[str, int, int], run: Runner, jobs: list[int]
) -> tuple[Future[int], list[Future[int]]]:
    first = pool.submit(batcher.submit, "t", 0)
    assert run.entered.acquire(timeout=WAIT_S)
    rest = []
    for count, job in enumerate(jobs, 1):  # one after the other, so that the order is known
        rest.append(pool.submit(batcher.submit, "t", job))
        waiting(batcher, "t", count)
    return first, rest


def test_alone(pool: ThreadPoolExecutor) -> None:
    run = Runner()
    run.go.release()
    assert Batcher(run).submit("t", 4) == 40
    assert run.batches == [("t", [4])]


def test_those_that_came_meanwhile_are_led_by_the_first_of_them(pool: ThreadPoolExecutor) -> None:
    run = Runner()
    batcher = Batcher(run)
    first, rest = queue_behind_a_leader(pool, batcher, run, [1, 2, 3])
    run.go.release(2)
    assert first.result(WAIT_S) == 0
    assert [future.result(WAIT_S) for future in rest] == [10, 20, 30]
    assert run.batches == [("t", [0]), ("t", [1, 2, 3])]
    assert batcher._queues == {}, "a table that nobody writes to is forgotten"


def test_a_batch_ends_with_the_job_that_makes_it_large(pool: ThreadPoolExecutor) -> None:
    run = Runner()
    batcher = Batcher(run, lambda job: job * batcher_module.BATCH_BYTES_AIM // 4)
    first, rest = queue_behind_a_leader(pool, batcher, run, [1, 2, 3, 9, 1])
    run.go.release(4)
    assert first.result(WAIT_S) == 0
    assert [future.result(WAIT_S) for future in rest] == [10, 20, 30, 90, 10]
    assert run.batches == [("t", [0]), ("t", [1, 2, 3]), ("t", [9]), ("t", [1])]


def test_keys_do_not_wait_for_each_other(pool: ThreadPoolExecutor) -> None:
    run = Runner()
    batcher = Batcher(run)
    one = pool.submit(batcher.submit, "a", 1)
    two = pool.submit(batcher.submit, "b", 2)
    assert run.entered.acquire(timeout=WAIT_S)
    assert run.entered.acquire(timeout=WAIT_S), "both are inside at once"
    run.go.release(2)
    assert (one.result(WAIT_S), two.result(WAIT_S)) == (10, 20)


def test_the_error_of_one_job_is_its_own(pool: ThreadPoolExecutor) -> None:
    run = Runner(lambda job: InvalidArgument("two is bad") if job == 2 else job)
    batcher = Batcher(run)
    first, rest = queue_behind_a_leader(pool, batcher, run, [1, 2, 3])
    run.go.release(2)
    assert first.result(WAIT_S) == 0
    assert rest[0].result(WAIT_S) == 1
    with pytest.raises(InvalidArgument, match="two is bad"):
        rest[1].result(WAIT_S)
    assert rest[2].result(WAIT_S) == 3


def test_the_error_of_a_batch_reaches_all_of_it_and_nobody_else(pool: ThreadPoolExecutor) -> None:
    run = Runner()
    run.error = StoreConflict("lost")
    batcher = Batcher(run)
    first, rest = queue_behind_a_leader(pool, batcher, run, [1, 2])
    run.go.release()
    with pytest.raises(StoreConflict):
        first.result(WAIT_S)
    assert run.entered.acquire(timeout=WAIT_S)
    run.error = None
    run.go.release()
    assert [future.result(WAIT_S) for future in rest] == [10, 20]


def test_a_batch_is_bounded_and_the_rest_comes_next(pool: ThreadPoolExecutor) -> None:
    run = Runner()
    batcher = Batcher(run)
    jobs = list(range(1, BATCH_MAX + 3))
    first, rest = queue_behind_a_leader(pool, batcher, run, jobs)
    run.go.release(3)
    assert first.result(WAIT_S) == 0
    assert [future.result(WAIT_S) for future in rest] == [job * 10 for job in jobs]
    assert [len(batch) for _, batch in run.batches] == [1, BATCH_MAX, 2]


def test_too_many_waiting_are_sent_away(pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher_module, "WAITING_MAX", 2)
    run = Runner()
    batcher = Batcher(run)
    first, rest = queue_behind_a_leader(pool, batcher, run, [1, 2])
    with pytest.raises(Overloaded, match="try again in") as full:
        batcher.submit("t", 3)
    assert int(full.value.details["retry_after_ms"]) > 0
    run.go.release(2)
    assert [future.result(WAIT_S) for future in [first, *rest]] == [0, 10, 20]


def test_a_run_that_answers_too_few_fails_everybody_and_blocks_nobody(pool: ThreadPoolExecutor) -> None:
    batcher: Batcher[str, int, int] = Batcher(lambda key, jobs: [])
    with pytest.raises((ValueError, RuntimeError)):
        batcher.submit("t", 1)
    assert batcher._queues == {}


def test_many_threads_each_get_their_own_answer() -> None:
    total: dict[str, list[int]] = {"a": [], "b": []}

    def run(key: str, jobs: list[int]) -> list[int | LakemarkError]:
        total[key] += jobs
        return [InvalidArgument(str(job)) if job % 7 == 0 else job * 10 for job in jobs]

    batcher: Batcher[str, int, int] = Batcher(run)
    start = threading.Barrier(32)

    def work(worker: int) -> None:
        start.wait(WAIT_S)
        for number in range(200):
            job, key = worker * 1_000 + number, "ab"[number % 2]
            if job % 7 == 0:
                with pytest.raises(InvalidArgument, match=str(job)):
                    batcher.submit(key, job)
            else:
                assert batcher.submit(key, job) == job * 10

    with ThreadPoolExecutor(32) as workers:
        for done in [workers.submit(work, worker) for worker in range(32)]:
            done.result(60)
    assert sorted(total["a"] + total["b"]) == sorted(w * 1_000 + n for w in range(32) for n in range(200))
    assert batcher._queues == {}


def within(until: Deadline, batcher: Batcher[str, int, int], job: int) -> int:
    with deadline.within(until):
        return batcher.submit("t", job)


def test_a_job_whose_client_has_gone_is_not_run(pool: ThreadPoolExecutor) -> None:
    run = Runner()
    batcher = Batcher(run)
    first = pool.submit(batcher.submit, "t", 0)
    assert run.entered.acquire(timeout=WAIT_S)
    untils = [Deadline(float("inf")) for _ in range(3)]
    rest = []
    for job, until in enumerate(untils, 1):
        rest.append(pool.submit(within, until, batcher, job))
        waiting(batcher, "t", job)
    untils[0].abandon()  # the one that will lead
    untils[2].abandon()
    run.go.release(2)
    assert first.result(WAIT_S) == 0
    assert rest[1].result(WAIT_S) == 20
    for gone in (rest[0], rest[2]):
        with pytest.raises(DeadlineExceeded):
            gone.result(WAIT_S)
    assert [jobs for _, jobs in run.batches] == [[0], [2]]
    assert batcher._queues == {}


def test_a_job_whose_time_is_over_leaves_the_queue(pool: ThreadPoolExecutor) -> None:
    run = Runner()
    batcher = Batcher(run)
    first = pool.submit(batcher.submit, "t", 0)
    assert run.entered.acquire(timeout=WAIT_S)
    with pytest.raises(DeadlineExceeded):
        within(Deadline.after(0.001), batcher, 1)
    assert len(batcher._queues["t"]) == 0
    run.go.release()
    assert first.result(WAIT_S) == 0
    assert batcher._queues == {}


def test_a_batch_without_anybody_who_waits_is_not_run(pool: ThreadPoolExecutor) -> None:
    run = Runner()
    batcher = Batcher(run)
    gone = Deadline(float("inf"))
    gone.abandon()
    with pytest.raises(DeadlineExceeded):
        within(gone, batcher, 1)
    assert run.batches == []
    assert batcher._queues == {}


def test_a_job_whose_time_is_over_while_its_batch_runs_has_an_unknown_outcome(pool: ThreadPoolExecutor) -> None:
    run = Runner()
    batcher = Batcher(run)
    first, rest = queue_behind_a_leader(pool, batcher, run, [1])
    begun = threading.Event()

    def submit() -> int:
        # Its time is over when the batch with it has begun: when its own thread asks for the time, it waits for that.
        me = threading.get_ident()
        until = Deadline(1.0, clock=lambda: 2.0 if threading.get_ident() == me and begun.wait(WAIT_S) else 0.0)
        return within(until, batcher, 2)

    late = pool.submit(submit)
    waiting(batcher, "t", 2)
    run.go.release()
    assert first.result(WAIT_S) == 0
    assert run.entered.acquire(timeout=WAIT_S)
    begun.set()
    with pytest.raises(DeadlineUnknown, match="may have happened"):
        late.result(WAIT_S)
    run.go.release()
    assert rest[0].result(WAIT_S) == 10
    assert run.batches[-1] == ("t", [1, 2]), "it was carried out all the same"


def test_a_batch_has_the_time_of_the_last_of_its_requests(pool: ThreadPoolExecutor) -> None:
    seen: list[float] = []

    def run(key: str, jobs: list[int]) -> list[int | LakemarkError]:
        seen.append(deadline.current().at_s)
        return list(jobs)

    assert within(Deadline(1e12), Batcher(run), 1) == 1
    assert Batcher(run).submit("t", 1) == 1
    assert seen == [1e12, float("inf")]
