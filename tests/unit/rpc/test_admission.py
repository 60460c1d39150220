"""The tenant of a request that is not decoded yet, and how many requests are received at a time."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.errors import DeadlineExceeded, InvalidArgument
from lakemark_proto.v1 import admin_pb2, catalog_pb2, snapshot_pb2, timeline_pb2
from lakemark_proto.v1.types_pb2 import DataFiles, TableName
from lakemark_server.admission.ranks import Rank
from lakemark_server.rpc import admission
from lakemark_server.rpc.admission import _DEPTH_MAX, Receiving, _path, tenant_reader
from lakemark_server.rpc.wire_scan import find_text

METHODS = {
    method.name: method
    for module in (catalog_pb2, timeline_pb2, snapshot_pb2, admin_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
COMMIT = timeline_pb2.CommitRequest
CATALOG = ((COMMIT.DESCRIPTOR.fields_by_name["table"].number, False), (1, False))


def tenant(request: Message) -> str:
    read = tenant_reader(request.DESCRIPTOR)  # type: ignore[arg-type] # stubs have two ranks of descriptors
    return read(request.SerializeToString())


def test_every_request_has_a_place_for_its_tenant() -> None:
    """A request without one would count as the default tenant's."""
    assert {name for name, method in METHODS.items() if not _path(method.input_type, _DEPTH_MAX)} == {"ListQuotas"}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (catalog_pb2.ListDatabasesRequest(), "hive"),
        (catalog_pb2.ListDatabasesRequest(catalog="Other"), "other"),
        (catalog_pb2.CreateDatabaseRequest(database=catalog_pb2.Database(name="x", catalog="other")), "other"),
        (catalog_pb2.GetTableRequest(name=TableName(catalog="other", database="d", table="t")), "other"),
        (catalog_pb2.GetTableRequest(name=TableName(database="other", table="t")), "hive"),
        (catalog_pb2.ListDatabasesRequest(catalog="x" * 129), "hive"),
        (
            timeline_pb2.CommitTransactionRequest(
                commits=[COMMIT(table=TableName(catalog=name)) for name in ("one", "two")]
            ),
            "one",
        ),
        (timeline_pb2.CommitTransactionRequest(commits=[COMMIT(), COMMIT(table=TableName(catalog="two"))]), "hive"),
        (timeline_pb2.CommitTransactionRequest(), "hive"),
    ],
)
def test_tenants(request_: Message, expected: str) -> None:
    assert tenant(request_) == expected


NAMES = st.text(max_size=20)
REQUESTS = st.builds(
    COMMIT,
    table=st.none() | st.builds(TableName, catalog=NAMES, database=NAMES, table=NAMES),
    instant=st.integers(0, 2**62),
    schema_id=st.integers(0, 2**30),
    request_id=NAMES,
    added=st.none() | st.builds(DataFiles, arrow=st.binary(max_size=300)),
    metadata=st.dictionaries(NAMES, NAMES, max_size=3),
)


@given(st.lists(REQUESTS, min_size=1, max_size=3))
def test_a_message_that_comes_in_pieces(requests: list[timeline_pb2.CommitRequest]) -> None:
    """The encoding allows it: what comes later counts."""
    data = b"".join(one.SerializeToString() for one in requests)
    assert find_text(data, CATALOG).decode() == COMMIT.FromString(data).table.catalog


@given(REQUESTS)
def test_one_message(request: timeline_pb2.CommitRequest) -> None:
    assert find_text(request.SerializeToString(), CATALOG).decode() == request.table.catalog


@given(st.binary(max_size=200))
def test_garbage_is_nobodys(data: bytes) -> None:
    assert len(find_text(data, CATALOG)) <= len(data)


def test_a_large_request_is_not_read_through() -> None:
    files = DataFiles(arrow=b"\xff" * 1_000_000)
    assert tenant(COMMIT(table=TableName(catalog="other"), added=files)) == "other"


class Sender:
    """A call whose message is sent when the test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.sent: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def read(self) -> object:
        self.asked.set()
        return await self.sent


def test_only_so_many_messages_are_received_at_a_time() -> None:
    async def scenario() -> None:
        receiving = Receiving(1)
        senders = {rank: [Sender() for _ in range(4)] for rank in Rank}
        calls = {
            rank: [asyncio.create_task(receiving.message(rank, sender)) for sender in some]  # type: ignore[arg-type]
            for rank, some in senders.items()
        }
        for _ in range(10):
            await asyncio.sleep(0)
        asked = {rank: [sender.asked.is_set() for sender in some] for rank, some in senders.items()}
        assert asked == {rank: [True, rank is Rank.WRITE, False, False] for rank in Rank}
        reads = senders[Rank.READ]
        reads[0].sent.set_result(b"one")
        assert await calls[Rank.READ][0] == b"one"
        await reads[1].asked.wait()
        calls[Rank.READ][1].cancel()
        await reads[2].asked.wait()
        reads[2].sent.set_result(grpc.aio.EOF)
        with pytest.raises(InvalidArgument):
            await calls[Rank.READ][2]
        await reads[3].asked.wait()
        for some in calls.values():
            for call in some:
                call.cancel()

    asyncio.run(scenario())


def test_a_message_that_does_not_come_gives_its_turn_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "RECEIVE_S_MAX", 0.01)

    async def scenario() -> None:
        receiving = Receiving(1)
        for _ in range(3):
            with pytest.raises(DeadlineExceeded, match="whole"):
                await receiving.message(Rank.READ, Sender())  # type: ignore[arg-type]

    asyncio.run(scenario())


def test_one_after_the_other_is_ended_and_who_is_cancelled_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "RECEIVE_S_MAX", 0.01)

    async def scenario() -> None:
        receiving = Receiving(2)
        gone = asyncio.create_task(receiving.message(Rank.READ, Sender()))  # type: ignore[arg-type]
        slow = [asyncio.create_task(receiving.message(Rank.WRITE, Sender()))]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        gone.cancel()  # timers are looked at when this step is over, so it is in time however long it has taken
        with pytest.raises(asyncio.CancelledError):
            await gone
        for _ in range(2):
            await asyncio.sleep(0.001)  # so that the times of all do not end at once
            slow.append(asyncio.create_task(receiving.message(Rank.WRITE, Sender())))  # type: ignore[arg-type]
        for call in slow:
            with pytest.raises(DeadlineExceeded, match="whole"):
                await call

    asyncio.run(scenario())
