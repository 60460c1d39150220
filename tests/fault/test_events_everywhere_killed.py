"""Load while services, sink runners, Kafka's broker and an outside Metastore are killed (kill -9) at random.

In the end, every acknowledged change has exactly one event, in order; the log, replayed, leads to the metadata; every
consumer has seen every event at least once, and one that drops repeats exactly once; the outside Metastore is equal
to ours, object by object.

The short form is part of the fault suite: its outside Metastore is another Lakemark, and its broker is one for tests
that cannot be killed. The long forms are slow; one of them has Hive 2.3 and a real broker::

    LAKEMARK_TEST_LENGTH=20 scripts/test-slow tests/fault/test_events_everywhere_killed.py
    LAKEMARK_TEST_LENGTH=20 scripts/test-postgres -m slow tests/fault/test_events_everywhere_killed.py
    LAKEMARK_TEST_LENGTH=20 LAKEMARK_TEST_FDB=… scripts/test-fdb -m slow tests/fault/test_events_everywhere_killed.py
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.peers.hive23 import HiveMetastore

from lakemark_hms.outside import Metastore
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1 import listeners_pb2 as ls
from lakemark_proto.v1 import sinks_pb2 as sk
from lakemark_proto.v1 import types_pb2 as p
from lakemark_proto.v1.events_pb2_grpc import EventServiceStub
from lakemark_proto.v1.listeners_pb2_grpc import ListenerServiceStub
from lakemark_proto.v1.sinks_pb2_grpc import SinkServiceStub
from lakemark_server.events.log import EventLog
from lakemark_server.kv import Store, open_store
from lakemark_server.verify import verify
from tests.event_replay import replay_problems
from tests.fault.event_changes import (
    BUSY,
    LAKE_PREFIX,
    MIRRORED,
    OWN_PREFIX,
    DatabaseWriter,
    LakeWriter,
    Ledger,
    WarehouseWriter,
    Writer,
    create_database,
    keys_of,
)
from tests.fault.event_readers import ExactlyOnce, Group, Member, Reader
from tests.fault.killable import Killable
from tests.fault.killers import Habits, Killer, Victim
from tests.integration.listener.objects import described
from tests.kafka_broker import KafkaBroker, MockKafka, TopicReader
from tests.lengths import long, seed
from tests.stores import store_url
from tests.webhooks import SECRET, WebhookReceiver, answering, cutting
from tests.wire import Wire

LONG_S = 60.0
SECONDS: Final = long(180)
SEED: Final = seed(18)
SETTLED_S: Final = 300.0
"""How long consumers may take with what there is in the end; a JVM has to start on a busy machine."""

SQLITE: Final = os.environ.get("LAKEMARK_TEST_STORE", "sqlite") == "sqlite"
SETTINGS: Final[dict[str, Any]] = {
    "hms_enabled": True,
    "hms_port": 0,
    "webhook_networks": ["127.0.0.0/8"],
    "webhook_plain_http": True,
    "sink_look_s": 0.1,
    "sink_lease_s": 1.0,
    "sink_first_pause_s": 0.1,
    "sink_longest_pause_s": 1.0,
    "listener_interval_s": 0.1,
    "listener_lease_s": 5.0,
}
HOOK, TOPIC, FOLLOWER, GROUP = "hook", "events", "follower", "group"


class Scene:
    """Everything that takes part: services of one store, an outside Metastore, a broker, a receiver."""

    def __init__(self, directory: Path, outside: Victim, outside_uri: str, broker: KafkaBroker | MockKafka) -> None:
        self.outside, self.outside_uri, self.broker = outside, outside_uri, broker
        self.url = store_url(directory)
        self.services = [Killable(self.url, f"{directory}/warehouse", **SETTINGS) for _ in range(1 if SQLITE else 2)]
        self.receiver = WebhookReceiver()
        self.kills: Counter[str] = Counter()

    def wire(self) -> Wire:
        return Wire(self.services[0].address())


def start(scene: Scene, setup: Writer) -> None:
    """Databases and consumers of all kinds; all begin with the first event."""
    for service in scene.services:
        service.start()
    scene.broker.make_topic(TOPIC)
    for name in (MIRRORED, BUSY):
        create_database(setup, name, setup.request_id())
    wire = scene.wire()
    everything = pb.EventPosition()
    EventServiceStub(wire.channel).CreateConsumer(pb.CreateConsumerRequest(name=GROUP, begin=everything))
    sinks = SinkServiceStub(wire.channel)
    sinks.CreateSink(
        sk.CreateSinkRequest(
            name=HOOK,
            webhook=sk.WebhookSink(url=scene.receiver.url, batch=True, timeout_ms=500, attempts_max=-1),
            secrets=sk.SinkSecrets(signing_secrets=[SECRET]),
            begin=everything,
        )
    )
    kafka = sk.KafkaSink(bootstrap_servers=scene.broker.address, topic=TOPIC)
    sinks.CreateSink(sk.CreateSinkRequest(name=TOPIC, kafka=kafka, begin=everything))
    ListenerServiceStub(wire.channel).CreateListener(
        ls.CreateListenerRequest(name=FOLLOWER, uri=scene.outside_uri, patterns=[MIRRORED, f"{OWN_PREFIX}*"])
    )
    wire.close()


def until(what: Callable[[], bool], describe: Callable[[], object]) -> None:
    deadline = time.monotonic() + SETTLED_S
    while not what():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.1)


def checked(threads: Sequence[Writer | Reader | Killer]) -> None:
    for thread in threads:
        assert thread.error is None, f"{thread.name}: {thread.error!r}"


def run(scene: Scene, seconds: float, seed: int, pause_s: float, killers: Sequence[Killer]) -> None:
    """Load and kills for so long; then everything lives, and what was told has to arrive and be right."""
    services = scene.services
    setup = DatabaseWriter(services, seed, pause_s)
    start(scene, setup)
    writers: list[Writer] = [
        setup,
        LakeWriter("mirrored", MIRRORED, services, seed, pause_s),
        *(LakeWriter(f"busy{n}", BUSY, services, seed, pause_s / 4) for n in range(2)),
        *(WarehouseWriter(f"hive{n}", services, seed, pause_s) for n in range(2)),
    ]
    group = Group(GROUP)
    watchers = [ExactlyOnce(f"watcher{n}", services, seed) for n in range(2)]
    readers: list[Reader] = [*watchers, *(Member(f"member{n}", group, services, seed) for n in range(2))]
    threads = [*writers, *readers, *killers]
    for thread in threads:
        thread.start()
    chance = random.Random(seed)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        checked(threads)
        if chance.random() < 0.05:  # receivers have bad moments, too
            scene.receiver.script.append(chance.choice([cutting, answering(500), answering(503, retry_after="1")]))
        time.sleep(0.2)
    for killer in killers:
        killer.stop()
    for writer in writers:
        writer.stop()
    for writer in writers:
        writer.join()
    checked(threads)
    last = arrived(scene, readers)
    for reader in readers:
        reader.stop()
    for reader in readers:
        reader.join()
    checked(threads)
    same_outside(scene)
    for service in services:
        service.kill()
    store = open_store(scene.url)
    try:
        in_the_log(store, [writer.ledger for writer in writers], last)
    finally:
        store.close()
    everything = list(range(1, last + 1))
    for watcher in watchers:
        assert watcher.offsets == everything, "exactly once, in order"
    assert list(dict.fromkeys(group.offsets)) == everything, "at least once, in order"
    delivered = [event["data"]["offset"] for event in scene.receiver.delivered]
    assert without_repeats(delivered) == everything, "exactly once for a receiver that drops what it has seen"
    in_the_topic(scene, last)
    done = sum(len(writer.ledger.done) for writer in writers)
    lost = sum(writer.ledger.lost for writer in writers)
    print(
        f"{seconds:.0f} s, seed {seed}: {done} acknowledged changes, {last} events, {lost} requests cut off; kills "
        f"{dict(scene.kills)}; repeats: group {len(group.offsets) - last}, webhook {len(delivered) - last}; streams "
        f"{[reader.streams for reader in readers]}"
    )
    assert done, "nothing was done"
    if seconds >= LONG_S:  # in a few seconds no kill need hit a request
        assert done > seconds, "hardly anything was done"
        assert lost, "no request was cut off: nothing was tested"


def arrived(scene: Scene, readers: Sequence[Reader]) -> int:
    """Waits until everybody has everything. Returns the last offset."""
    wire = scene.wire()
    events, sinks = EventServiceStub(wire.channel), SinkServiceStub(wire.channel)
    listeners = ListenerServiceStub(wire.channel)
    end = 0

    def done() -> bool:
        nonlocal end
        end = events.GetEventLog(pb.GetEventLogRequest()).last
        told = [sinks.GetSink(sk.GetSinkRequest(name=name)) for name in (HOOK, TOPIC)]
        follower = listeners.GetListener(ls.GetListenerRequest(name=FOLLOWER))
        return (
            all(reader.last >= end for reader in readers if not isinstance(reader, Member))
            and max(reader.last for reader in readers if isinstance(reader, Member)) >= end
            and all(sink.lag_events == 0 for sink in told)
            and follower.lag_events == 0
            and not follower.state.failing_since_ms
        )

    def describe() -> object:
        return (
            end,
            [(reader.name, reader.last) for reader in readers],
            sinks.ListSinks(sk.ListSinksRequest()),
            listeners.GetListener(ls.GetListenerRequest(name=FOLLOWER)),
        )

    until(done, describe)
    wire.close()
    return end


def same_outside(scene: Scene) -> None:
    """The outside Metastore has what we have: by the service's own comparison, and by another one."""
    wire = scene.wire()
    listeners = ListenerServiceStub(wire.channel)
    compared = listeners.CompareListener(ls.CompareListenerRequest(name=FOLLOWER))
    assert compared.compared > 0
    assert list(compared.differences) == []
    assert list(listeners.GetListener(ls.GetListenerRequest(name=FOLLOWER)).problems) == []
    listed = wire.catalog.ListDatabases(c.ListDatabasesRequest())
    assert not listed.next_page_token
    mirrored = [name for name in listed.names if name == MIRRORED or name.startswith(OWN_PREFIX)]
    with Metastore(scene.services[0].address("hms")) as here, Metastore(scene.outside_uri) as there:
        ours, theirs = described(here, mirrored), described(there, mirrored)
        outside = there.call("get_all_databases")
    assert {name for name in outside if name.startswith(OWN_PREFIX)} == set(mirrored) - {MIRRORED}
    assert _warehouse(ours) == _warehouse(theirs)
    _same_lake_tables(wire, theirs)
    wire.close()


def _warehouse(objects: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in objects.items() if f".{LAKE_PREFIX}" not in name}


def _same_lake_tables(wire: Wire, theirs: Mapping[str, Any]) -> None:
    """Outside, a lake table is a plain one with a partition for each directory of files."""
    listed = wire.catalog.ListTables(c.ListTablesRequest(database=MIRRORED)).tables
    ours = [one.name for one in listed if one.name.startswith(LAKE_PREFIX)]
    outside = {name for name in theirs if name.startswith(f"{MIRRORED}.{LAKE_PREFIX}") and "/" not in name}
    assert outside == {f"{MIRRORED}.{name}" for name in ours}
    for name in ours:
        wire.table = p.TableName(database=MIRRORED, table=name)
        location = wire.catalog.GetTable(c.GetTableRequest(name=wire.table)).location
        wanted = sorted(f"{location}/{path.rpartition('/')[0]}" for path in wire.read()[1])
        slices = [value for key, value in theirs.items() if key.startswith(f"{MIRRORED}.{name}/")]
        assert sorted(storage[1] for storage, _ in slices) == wanted, name


def in_the_log(store: Store, ledgers: Sequence[Ledger], last: int) -> None:
    """Each acknowledged change has its event, in order, and the log leads to what the store has."""
    log = EventLog(store)
    offsets: dict[Any, list[int]] = defaultdict(list)
    position, count = log.begin("hive", 0), 0
    while True:
        page = log.page("hive", position)
        for event in page.events:
            count += 1
            assert event.offset == count
            for key in keys_of(event):
                offsets[key].append(event.offset)
        position = page.position
        if page.whole:
            break
    assert count == last
    assert [problem for ledger in ledgers for problem in ledger.problems(offsets)] == []
    assert verify(store) + replay_problems(store) == []


def without_repeats(offsets: Sequence[int]) -> list[int]:
    """As the receiver of docs/sinks.md does it."""
    new: list[int] = []
    for offset in offsets:
        if not new or offset > new[-1]:
            new.append(offset)
    return new


def in_the_topic(scene: Scene, last: int) -> None:
    reader = TopicReader(scene.broker.address, TOPIC)
    read = reader.read(last)
    reader.close()
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for message in read:
        by_key[message.key()].append(json.loads(message.value())["data"]["offset"])
    assert all(offsets == sorted(offsets) for offsets in by_key.values()), "in order for each key"
    assert sorted(offset for offsets in by_key.values() for offset in offsets) == list(range(1, last + 1))
    assert all(len(partitions) == 1 for partitions in reader.partitions.values())


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def play(
    cleanup: ExitStack,
    scene: Scene,
    seconds: float,
    seed: int,
    pause_s: float,
    victims: Mapping[str, tuple[Sequence[Victim], Habits]],
) -> None:
    for service in scene.services:
        cleanup.callback(service.end)
    cleanup.enter_context(scene.receiver)
    killers = [Killer(name, those, habits, seed, scene.kills) for name, (those, habits) in victims.items()]
    try:
        run(scene, seconds, seed, pause_s, killers)
    finally:
        for killer in killers:
            if killer.is_alive():
                killer.stop()


def with_another_lakemark(directory: Path, cleanup: ExitStack, seconds: float, seed: int, pause_s: float) -> None:
    """Without a JVM."""
    (directory / "theirs").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    theirs = f"{directory}/theirs/warehouse"
    outside = Killable(store_url(directory / "theirs"), theirs, hms_enabled=True, hms_port=port)
    cleanup.callback(outside.end)
    outside.start()
    broker = MockKafka()
    cleanup.callback(broker.kill)
    scene = Scene(directory, outside, f"thrift://127.0.0.1:{port}", broker)
    victims = {
        "service": (scene.services, Habits((2.0, 4.0), 0.5)),
        "outside Metastore": ([outside], Habits((3.0, 5.0), 1.0)),
    }
    play(cleanup, scene, seconds, seed, pause_s, victims)


def test_a_few_seconds(tmp_path: Path, cleanup: ExitStack) -> None:
    with_another_lakemark(tmp_path, cleanup, 10.0, 1, 0.1)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 900)
def test_for_long_with_another_lakemark(tmp_path: Path, cleanup: ExitStack) -> None:
    with_another_lakemark(tmp_path, cleanup, SECONDS, SEED, 0.3)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 900)
def test_for_long_with_hive_and_kafka(tmp_path: Path, cleanup: ExitStack) -> None:
    hive = HiveMetastore(tmp_path / "hive")
    cleanup.callback(hive.stop)
    hive.start()
    broker = cleanup.enter_context(KafkaBroker())
    scene = Scene(tmp_path, hive, f"thrift://127.0.0.1:{hive.port}", broker)
    victims: dict[str, tuple[Sequence[Victim], Habits]] = {
        "service": (scene.services, Habits((2.0, 8.0), 1.0)),
        "broker": ([broker], Habits((15.0, 40.0), 8.0)),
        "outside Metastore": ([hive], Habits((20.0, 60.0), 10.0)),
    }
    play(cleanup, scene, SECONDS, SEED, 0.4, victims)
