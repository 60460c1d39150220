"""Deadlines and clients that disconnect: what happened is reported correctly, and nothing is partial."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakemark import Client
from lakemark.client.calls import Backoff, Calls
from lakemark.errors import CommitConflict, DeadlineExceeded, DeadlineUnknown
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.context import deadline
from lakemark_server.context.deadline import Deadline
from lakemark_server.file_index.pages import blocks
from lakemark_server.kv import Transaction
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from lakemark_server.timeline.instants import staging
from lakemark_server.timeline.publication.commits import CommitDraft
from lakemark_server.verify import verify
from tests.lakes import file, files, open_lake
from tests.stores import store_url
from tests.wire import Wire

WAIT_S = 60.0
FILES = 4_000


class Gate:
    """Stops calls of a method until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()
        original: Callable[..., Any] = getattr(owner, name)

        def held(*arguments: Any, **named: Any) -> Any:
            self.entered.release()
            assert self.opened.wait(WAIT_S)
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, held)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    given: dict[str, Any] = {
        "store": store_url(tmp_path),
        "warehouse": str(tmp_path / "warehouse"),
        "grpc_port": 0,
        "hms_enabled": False,
        "sweep_interval_s": 3_600.0,
    }
    with Service(Settings(**given)) as running:
        yield running
        assert verify(running.store) == []


@pytest.fixture
def wire(service: Service) -> Iterator[Wire]:
    opened = Wire(service.grpc_address)
    opened.create()
    yield opened
    opened.close()


def commit(wire: Wire, instant: int, timeout: float = WAIT_S) -> Any:
    """A commit that is on its way."""
    request = t.CommitRequest(table=wire.table, instant=instant, added=files(file(instant, "a", 1)))
    return wire.timeline.Commit.future(request, timeout=timeout)


def state(wire: Wire, instant: int) -> str:
    record = wire.timeline.GetInstant(t.GetInstantRequest(table=wire.table, instant=instant))
    return t.InstantState.Name(record.state)


def queued(service: Service, count: int) -> None:
    """Returns when so many writers wait for their table's batch. There is no event for that, so it polls."""
    for _ in range(100_000):
        if sum(map(len, service.timeline._batches._queues.values())) >= count:
            return
        threading.Event().wait(0.001)
    raise AssertionError("the writers never came")


def test_a_commit_that_waits_for_its_batch_is_taken_out_when_its_client_goes(
    service: Service, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    instants = [wire.open().instant for _ in range(3)]
    gate = Gate(monkeypatch, service.timeline._batches, "_run")
    first = commit(wire, instants[0])
    assert gate.entered.acquire(timeout=WAIT_S)
    gone = commit(wire, instants[1])
    queued(service, 1)
    last = commit(wire, instants[2])
    queued(service, 2)
    gone.cancel()
    state(wire, instants[1])  # what comes later on the connection finds the cancellation done
    gate.opened.set()

    assert first.result().version == 1
    assert last.result().version == 2
    assert state(wire, instants[1]) == "INFLIGHT", "not committed, and not rolled back either"
    assert commit(wire, instants[1]).result().version == 3


def committer_of(service: Service) -> object:
    """The thread that commits for all. On FoundationDB every thread commits for itself."""
    committer: object = getattr(service.store, "_committer", None)
    if committer is None:
        pytest.skip("this store has no queue of commits")
    return committer


def test_a_commit_whose_time_is_over_in_the_store_has_an_unknown_outcome(
    service: Service, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    instant = wire.open().instant
    gate = Gate(monkeypatch, committer_of(service), "_apply")
    request = t.CommitRequest(table=wire.table, instant=instant, added=files(file(instant, "a", 1)))
    with Client(service.grpc_address) as client:
        calls = Calls(client.address, 3.0, Backoff(0.01, 0.05, 3))
        with pytest.raises(DeadlineUnknown, match="may have happened"):
            calls(wire.timeline.Commit, request, mutation=True)
        calls.close()
    assert gate.entered.acquire(timeout=WAIT_S)
    gate.opened.set()
    assert wire.timeline.Commit(request).version == 1, "it did happen; asked again, it says so"


def test_a_request_whose_time_is_over_before_the_store_has_surely_not_happened(
    service: Service, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first transaction keeps the store busy, so the second one still waits in its queue when its time is over."""
    instants = [wire.open().instant for _ in range(2)]
    other = Wire(service.grpc_address, "other")
    other.create()
    late = other.open().instant
    gate = Gate(monkeypatch, committer_of(service), "_apply")
    first = commit(wire, instants[0])
    assert gate.entered.acquire(timeout=WAIT_S)
    over = Deadline.after(0.05)
    table = service.catalog.get_lake_table("", "default", "other")
    draft = CommitDraft(late, files(file(late, "a", 1)))
    with deadline.within(over), pytest.raises(DeadlineExceeded):
        service.timeline.commit(table, draft)
    gate.opened.set()
    assert first.result().version == 1
    assert state(other, late) == "INFLIGHT"
    assert service.timeline.commit(table, draft).version == 1
    other.close()


def test_staging_stops_between_its_transactions_and_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES_AIM", 1)  # small blocks, each in a transaction of its own
    monkeypatch.setattr(staging, "TRANSACTION_BYTES_AIM", 1)
    with open_lake(tmp_path) as lake:
        table = lake.table()
        instant = lake.open(table)
        given = [file(instant, f"g{number}", 1) for number in range(FILES)]
        now = [0.0]
        original = lake.store.transact

        def slow(body: Callable[[Transaction], Any]) -> Any:
            answer = original(body)
            now[0] += 1.0
            return answer

        monkeypatch.setattr(lake.store, "transact", slow)
        with deadline.within(Deadline(1.5, clock=lambda: now[0])), pytest.raises(DeadlineExceeded):
            lake.stage(table, instant, 1, given)
        assert now == [2.0], "the third transaction was not begun"
        record, _ = lake.timeline.instant(table.table_id, instant)
        assert record.staged.files == 0

        assert lake.stage(table, instant, 1, given) == FILES
        assert lake.commit(table, instant).version == 1
        assert len(lake.paths(table)) == FILES


def test_a_conflict_rolls_back_however_late_it_is(tmp_path: Path) -> None:
    """The refusal of a commit is kept with its instant, and repeated requests get the same."""
    with open_lake(tmp_path) as lake:
        table = lake.table()
        instant = lake.open(table)
        over = Deadline(float("inf"))
        over.abandon()
        with deadline.within(over):
            lake.timeline._give_up(table, instant, CommitConflict("lost"))
        record, _ = lake.timeline.instant(table.table_id, instant)
        assert (record.state, record.conflict.message) == (t.ROLLED_BACK, "lost")


def test_a_read_that_nobody_waits_for_ends_at_the_next_transaction(service: Service) -> None:
    over = Deadline(float("inf"))
    over.abandon()
    with deadline.within(over), pytest.raises(DeadlineExceeded):
        service.catalog.get_database("", "default")
