from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakemark_core.errors import DeadlineExceeded, DeadlineUnknown, Internal, LakemarkError, Overloaded
from lakemark_server.context import deadline
from lakemark_server.kv import Conflict, StoreClosed, group_commit
from lakemark_server.kv.buffer import PendingTransaction
from lakemark_server.kv.group_commit import BATCH_BYTES_MAX, BATCH_TRANSACTIONS_MAX, GroupCommitter
from lakemark_server.kv.overlay import Overlay


def request(version: int, size_bytes: int = 1) -> PendingTransaction:
    return PendingTransaction(version, set(), [], Overlay(), [], size_bytes)


class Gate:
    """An ``apply`` whose first batch waits until the test opens the gate; refuses odd versions."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.entered = threading.Event()
        self.opened = threading.Event()

    def apply(self, batch: Sequence[PendingTransaction]) -> list[LakemarkError | None]:
        versions = [request.read_version or 0 for request in batch]
        self.batches.append(versions)
        self.entered.set()
        assert self.opened.wait(60)
        return [Conflict(f"odd {version}") if version % 2 else None for version in versions]


def test_what_waits_while_a_batch_is_written_goes_together_in_order() -> None:
    gate = Gate()
    committer = GroupCommitter(gate.apply, "test")
    with ThreadPoolExecutor(32) as pool:
        first = pool.submit(committer.commit, request(0))
        assert gate.entered.wait(60)
        others = []
        for version in range(1, 20):
            others.append(pool.submit(committer.commit, request(version)))
            while committer.waiting() < version:
                threading.Event().wait(0.001)
        gate.opened.set()
        first.result()
        for version, other in enumerate(others, 1):
            if version % 2:
                with pytest.raises(Conflict, match=f"odd {version}$"):
                    other.result()
            else:
                other.result()
    committer.close()
    assert gate.batches == [[0], list(range(1, 20))]


@pytest.mark.parametrize(
    ("count", "size_bytes", "largest"),
    [(600, 1, BATCH_TRANSACTIONS_MAX), (6, BATCH_BYTES_MAX // 2, 2)],
    ids=["transactions", "bytes"],
)
def test_batches_are_bounded(count: int, size_bytes: int, largest: int) -> None:
    gate = Gate()
    committer = GroupCommitter(gate.apply, "test")
    with ThreadPoolExecutor(count + 1) as pool:
        pool.submit(committer.commit, request(0))
        assert gate.entered.wait(60)
        for _ in range(count):
            pool.submit(committer.commit, request(2, size_bytes))
        while committer.waiting() < count:
            threading.Event().wait(0.001)
        gate.opened.set()
    committer.close()
    assert max(map(len, gate.batches)) == largest
    assert sum(map(len, gate.batches)) == count + 1


def test_a_defect_in_apply_reaches_its_callers_and_the_thread_lives_on() -> None:
    broken = True

    def apply(batch: Sequence[PendingTransaction]) -> list[LakemarkError | None]:
        if broken:
            raise ZeroDivisionError
        return [None] * len(batch)

    committer = GroupCommitter(apply, "test")
    with pytest.raises(Internal, match="ZeroDivisionError"):
        committer.commit(request(0))
    broken = False
    committer.commit(request(0))
    committer.close()
    committer.close()
    with pytest.raises(StoreClosed):
        committer.commit(request(0))


def test_what_arrives_while_the_turn_is_awaited_is_in_the_batch() -> None:
    gate = Gate()
    gate.opened.set()
    waits, has_come = threading.Event(), threading.Event()

    def turn() -> None:
        waits.set()
        assert has_come.wait(60)

    committer = GroupCommitter(gate.apply, "test", turn)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(committer.commit, request(0))
        assert waits.wait(60)
        others = [pool.submit(committer.commit, request(version)) for version in (2, 4)]
        while committer.waiting() < 1 + len(others):
            pass
        has_come.set()
        for each in (first, *others):
            each.result()
    committer.close()
    assert [sorted(batch) for batch in gate.batches] == [[0, 2, 4]]


def test_a_request_whose_time_is_over_before_its_batch_is_withdrawn_whole() -> None:
    gate = Gate()
    committer = GroupCommitter(gate.apply, "test")
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(committer.commit, request(0))
        assert gate.entered.wait(60)
        with deadline.within(deadline.Deadline.after(0.01)), pytest.raises(DeadlineExceeded):
            committer.commit(request(2))
        last = pool.submit(committer.commit, request(4))
        gate.opened.set()
        first.result()
        last.result()
    committer.close()
    assert [version for batch in gate.batches for version in batch] == [0, 4]


def test_a_request_whose_time_is_over_while_its_batch_is_written_has_an_unknown_outcome() -> None:
    gate = Gate()
    committer = GroupCommitter(gate.apply, "test")
    # Over as soon as the batch has begun: asking for the time waits for that.
    over = deadline.Deadline(1.0, clock=lambda: 2.0 if gate.entered.wait(60) else 0.0)
    with deadline.within(over), pytest.raises(DeadlineUnknown, match="may have happened"):
        committer.commit(request(0))
    gate.opened.set()
    committer.close()
    assert gate.batches == [[0]]


def test_too_many_waiting_commits_are_refused_with_a_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "WAITING_MAX", 1)
    gate = Gate()
    committer = GroupCommitter(gate.apply, "test")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(committer.commit, request(0))
        assert gate.entered.wait(60)
        second = pool.submit(committer.commit, request(2))
        while committer.waiting() < 1:
            threading.Event().wait(0.001)
        with pytest.raises(Overloaded) as refused:
            committer.commit(request(4))
        assert int(refused.value.details["retry_after_ms"]) > 0
        gate.opened.set()
        first.result()
        second.result()
    committer.close()


def test_who_gave_up_keeps_nobody_asleep() -> None:
    """All members of a group sleep on one lock, which must be passed on past those that left."""
    taken: list[int] = []
    second, permits = threading.Event(), threading.Semaphore(0)

    def apply(batch: Sequence[PendingTransaction]) -> list[LakemarkError | None]:
        taken.append(len(batch))
        if len(taken) == 2:
            second.set()
        permits.acquire()
        return [None] * len(batch)

    committer = GroupCommitter(apply, "test")
    over = deadline.Deadline(1.0, clock=lambda: 2.0 if second.wait(60) else 0.0)

    def leave() -> None:
        with deadline.within(over), pytest.raises(DeadlineUnknown):
            committer.commit(request(2))

    with ThreadPoolExecutor(8) as pool:
        stays = [pool.submit(committer.commit, request(0))]
        while not taken:
            threading.Event().wait(0.001)
        leaves = []
        for number in range(6):
            if number == 3:
                leaves.append(pool.submit(leave))
            else:
                stays.append(pool.submit(committer.commit, request(2)))
            while committer.waiting() <= number:
                threading.Event().wait(0.001)
        permits.release()
        leaves[0].result(60)
        permits.release()
        for each in stays:
            each.result(60)
    committer.close()
    assert taken == [1, 6]
