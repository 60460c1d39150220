"""Writers of one table that share a batch: who leads, who gets which answer. Ordered by events, never by time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from lakemark.errors import InvalidArgument, LakemarkError, LimitExceeded, StoreConflict
from lakemark_server.timeline import batching
from lakemark_server.timeline.batching import BATCH_MAX, Batcher

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
    """Returns when ``count`` jobs wait. Nothing tells that they do: looking is all we can."""
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
    monkeypatch.setattr(batching, "WAITING_MAX", 2)
    run = Runner()
    batcher = Batcher(run)
    first, rest = queue_behind_a_leader(pool, batcher, run, [1, 2])
    with pytest.raises(LimitExceeded, match="try again later"):
        batcher.submit("t", 3)
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
