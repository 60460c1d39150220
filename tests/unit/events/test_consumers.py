"""Consumers of events: where they begin, how they move, and who has them."""

from __future__ import annotations

import pytest

from lakemark_core.errors import (
    AlreadyExists,
    ConsumerNotFound,
    ConsumerTaken,
    EventsLost,
    FailedPrecondition,
    InvalidArgument,
    InvalidName,
    LimitExceeded,
    OffsetUnknown,
)
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_server.events.consumers import BEGINNING, END, Consumers, EventPosition, Start
from lakemark_server.events.log import EventLog
from lakemark_server.store import event_log
from lakemark_server.store.leases import Lease
from lakemark_server.store.mutations import Mutations
from tests.lakes import Lake

CATALOG = "one"
TTL_MS = 10_000
ALL = pb.EventFilter()


@pytest.fixture
def consumers(lake: Lake) -> Consumers:
    return Consumers(lake.store, EventLog(lake.store), lake.clock, consumers_max=3)


def tell(lake: Lake, count: int) -> None:
    mutations = Mutations(lake.store, lake.clock)
    for _ in range(count):
        mutations.run(lambda mutation: mutation.tell(pb.Event(kind=pb.COMMITTED, catalog=CATALOG)))


def held(consumers: Consumers, name: str, member: str) -> Lease:
    lease = consumers.hold(CATALOG, name, member, TTL_MS)
    assert lease is not None
    return lease


def test_a_consumer_begins_where_it_is_told_to(lake: Lake, consumers: Consumers) -> None:
    tell(lake, 5)
    assert consumers.create(CATALOG, "all", ALL, BEGINNING).position == EventPosition(0, 0)
    assert consumers.create(CATALOG, "new", ALL, END).position == EventPosition(5, 0)
    assert consumers.create(CATALOG, "some", ALL, Start(2, 0)).position == EventPosition(2, 0)
    assert [consumer.record.name for consumer in consumers.list(CATALOG)] == ["all", "new", "some"]
    assert [consumer.record.name for consumer in consumers.list(CATALOG, "all", 1)] == ["new"]
    assert consumers.list("other") == []


def test_what_is_wrong_with_a_new_consumer_is_told(lake: Lake, consumers: Consumers) -> None:
    tell(lake, 5)
    with pytest.raises(OffsetUnknown, match="no event with offset 6; the last one has 5"):
        consumers.create(CATALOG, "c", ALL, Start(6))
    with pytest.raises(InvalidArgument, match="-1 is no offset"):
        consumers.create(CATALOG, "c", ALL, Start(-1))
    with pytest.raises(InvalidArgument, match="either behind which offset to begin, or"):
        consumers.create(CATALOG, "c", ALL, Start(2, end=True))
    with pytest.raises(InvalidArgument, match="not reached epoch 7"):
        consumers.create(CATALOG, "c", ALL, Start(2, 7))
    with pytest.raises(InvalidName, match="'a b' is not legal"):
        consumers.create(CATALOG, "a b", ALL)
    with pytest.raises(InvalidArgument, match="no pattern"):
        consumers.create(CATALOG, "c", pb.EventFilter(patterns=["a b"]))
    assert consumers.list(CATALOG) == []


def test_creating_and_dropping_happen_once(lake: Lake, consumers: Consumers) -> None:
    consumers.create(CATALOG, "c", ALL, request_id="1", owner="ada")
    assert consumers.create(CATALOG, "c", ALL, request_id="1").record.owner == "ada"
    with pytest.raises(AlreadyExists):
        consumers.create(CATALOG, "c", ALL)
    assert consumers.drop(CATALOG, "c", request_id="2")
    assert consumers.drop(CATALOG, "c", request_id="2")
    with pytest.raises(ConsumerNotFound):
        consumers.drop(CATALOG, "c")
    assert not consumers.drop(CATALOG, "c", if_exists=True)


def test_there_are_only_so_many(consumers: Consumers) -> None:
    for name in "abc":
        consumers.create(CATALOG, name, ALL)
    with pytest.raises(LimitExceeded, match="has 3 consumers"):
        consumers.create(CATALOG, "d", ALL)
    consumers.create("other", "d", ALL)


def test_the_consumer_of_a_sink_goes_with_it(lake: Lake, consumers: Consumers) -> None:
    consumers.create(CATALOG, "c", ALL, managed_by="sink c")
    with pytest.raises(FailedPrecondition, match="belongs to sink c"):
        consumers.drop(CATALOG, "c")
    Mutations(lake.store, lake.clock).run(lambda mutation: consumers.drop_within(mutation, CATALOG, "c"))
    assert consumers.list(CATALOG) == []


def test_an_acknowledgement_moves_it_forward_only(lake: Lake, consumers: Consumers) -> None:
    tell(lake, 5)
    consumers.create(CATALOG, "c", ALL)
    assert consumers.acknowledge(CATALOG, "c", EventPosition(3, 0)) == EventPosition(3, 0)
    assert consumers.acknowledge(CATALOG, "c", EventPosition(2, 0)) == EventPosition(3, 0)
    with pytest.raises(OffsetUnknown):
        consumers.acknowledge(CATALOG, "c", EventPosition(6, 0))
    assert consumers.get(CATALOG, "c").position == EventPosition(3, 0)
    assert consumers.seek(CATALOG, "c", Start(1)).position == EventPosition(1, 0)
    with pytest.raises(ConsumerNotFound):
        consumers.acknowledge(CATALOG, "d", EventPosition(1, 0))


def test_one_member_has_it_and_only_its_word_counts(lake: Lake, consumers: Consumers) -> None:
    tell(lake, 5)
    consumers.create(CATALOG, "c", ALL)
    first = held(consumers, "c", "first")
    assert consumers.hold(CATALOG, "c", "second", TTL_MS) is None
    consumers.acknowledge(CATALOG, "c", EventPosition(1, 0), first.token)
    with pytest.raises(ConsumerTaken, match="first has consumer 'c' now"):
        consumers.acknowledge(CATALOG, "c", EventPosition(2, 0))

    lake.clock.advance(TTL_MS + 1)
    assert consumers.get(CATALOG, "c").member(lake.clock()) == ""
    first = consumers.keep(first, TTL_MS)  # nobody else has asked
    lake.clock.advance(TTL_MS + 1)
    second = held(consumers, "c", "second")
    assert consumers.get(CATALOG, "c").member(lake.clock()) == "second"
    with pytest.raises(ConsumerTaken, match="second has consumer"):
        consumers.acknowledge(CATALOG, "c", EventPosition(5, 0), first.token)
    with pytest.raises(ConsumerTaken, match="another member has consumer 'c' of catalog 'one'"):
        consumers.keep(first, TTL_MS)

    consumers.leave(second)
    with pytest.raises(ConsumerTaken, match="nobody has consumer"):
        consumers.acknowledge(CATALOG, "c", EventPosition(5, 0), second.token)
    assert held(consumers, "c", "first").token > second.token
    assert consumers.get(CATALOG, "c").position == EventPosition(1, 0)


def test_a_seek_and_a_drop_take_it_from_its_member(lake: Lake, consumers: Consumers) -> None:
    tell(lake, 5)
    consumers.create(CATALOG, "c", ALL)
    lease = held(consumers, "c", "m")
    consumers.seek(CATALOG, "c", Start(2))
    with pytest.raises(ConsumerTaken):
        consumers.acknowledge(CATALOG, "c", EventPosition(5, 0), lease.token)
    with pytest.raises(ConsumerTaken):
        consumers.keep(lease, TTL_MS)

    lease = held(consumers, "c", "m")
    consumers.drop(CATALOG, "c")
    lake.clock.advance(1)
    consumers.create(CATALOG, "c", ALL)
    with pytest.raises(ConsumerTaken):
        consumers.acknowledge(CATALOG, "c", EventPosition(5, 0), lease.token)
    held(consumers, "c", "m")
    with pytest.raises(ConsumerTaken):
        consumers.acknowledge(CATALOG, "c", EventPosition(5, 0), lease.token)


def test_what_a_restored_store_has_lost_is_told(lake: Lake, consumers: Consumers) -> None:
    tell(lake, 5)
    consumers.create(CATALOG, "c", ALL)
    lake.store.transact(lambda tx: event_log.begin_epoch(tx, 1))
    tell(lake, 5)
    with pytest.raises(EventsLost, match="has offset 5"):
        consumers.acknowledge(CATALOG, "c", EventPosition(6, 0))
    assert consumers.acknowledge(CATALOG, "c", EventPosition(5, 0)) == EventPosition(5, 1)
    assert consumers.acknowledge(CATALOG, "c", EventPosition(6, 1)) == EventPosition(6, 1)
