"""The calls of the ``hms`` benchmark: one client's code and one set of objects for every system."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from hmsclient.genthrift.hive_metastore.ttypes import (
    Database,
    FieldSchema,
    Partition,
    SerDeInfo,
    StorageDescriptor,
    Table,
)
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

DATABASE: Final = "bench"
TABLE: Final = "t"
DAYS: Final = 100
HOURS: Final = 100
BATCH: Final = 1_000
REPLY_TIMEOUT_MS: Final = 60_000
COLUMNS: Final = [FieldSchema(f"column_{number:02}", "bigint", None) for number in range(20)]
KEYS: Final = [FieldSchema("dt", "string", None), FieldSchema("hour", "int", None)]
FILTERS: Final = {
    1: 'dt = "d042" and hour = 17',
    100: 'dt = "d042"',
    1_200: 'dt >= "d040" and dt < "d052"',
}
"""Filters by the number of partitions that they select."""

_PARQUET: Final = "org.apache.hadoop.hive.ql.io.parquet."


@dataclass(frozen=True)
class System:
    """A metastore under test; ``location`` is the directory of the benchmark's database."""

    name: str
    port: int
    location: str


@contextmanager
def connected(port: int) -> Iterator[Any]:
    """A client whose protocol is in C. It raises an error instead of falling back to a slow one."""
    transport = TBufferedTransport(TSocket("127.0.0.1", port))
    transport.open()
    try:
        yield ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(transport, fallback=False))
    finally:
        transport.close()


def create_table(system: System) -> None:
    with connected(system.port) as client:
        client.create_database(Database(DATABASE, "", system.location, {}))
        client.create_table(table(system, TABLE))


def table(system: System, name: str) -> Table:
    return Table(
        dbName=DATABASE,
        tableName=name,
        owner="bench",
        sd=_storage(f"{system.location}/{name}"),
        partitionKeys=KEYS,
        parameters={"EXTERNAL": "TRUE"},
        tableType="EXTERNAL_TABLE",
    )


def partition(system: System, day: str, hour: str) -> Partition:
    """A partition of the table."""
    place = f"{system.location}/{TABLE}/dt={day}/hour={hour}"
    return Partition([day, hour], DATABASE, TABLE, 0, 0, _storage(place), {})


def partition_batches(system: System) -> Iterator[list[Partition]]:
    """All partitions of the table, BATCH at a time, in order."""
    batch = []
    for day in range(DAYS):
        for hour in range(HOURS):
            batch.append(partition(system, f"d{day:03}", str(hour)))
            if len(batch) == BATCH:
                yield batch
                batch = []


class Replay:
    """A call that was made and checked once, and is then sent again and again as the same bytes.

    A reply has as many bytes as the first one, so it is read without being decoded. That measures the metastore and not
    this client, which would need more time for a thousand partitions than the metastore does.
    """

    def __init__(self, port: int, call: Callable[[Any], object]) -> None:
        self._socket = _Tap("127.0.0.1", port)
        transport = TBufferedTransport(self._socket)
        transport.open()
        call(ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(transport, fallback=False)))
        self._request = bytes(self._socket.written)
        self._reply_bytes = self._socket.read_bytes
        self._buffer = bytearray(1 << 20)

    def again(self) -> None:
        handle = self._socket.handle
        handle.sendall(self._request)
        left = self._reply_bytes
        while left:
            count = handle.recv_into(self._buffer, min(left, len(self._buffer)))
            if not count:
                raise ConnectionError("the metastore closed the connection in the middle of a reply")
            left -= count

    def close(self) -> None:
        self._socket.close()


class _Tap(TSocket):  # type: ignore[misc]
    """A socket that remembers what was written, and how much was read."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.setTimeout(REPLY_TIMEOUT_MS)
        self.written = bytearray()
        self.read_bytes = 0

    def read(self, size: int) -> bytes:
        data: bytes = super().read(size)
        self.read_bytes += len(data)
        return data

    def write(self, data: bytes) -> None:
        self.written += data
        super().write(data)


def rate(port: int, connections: int, seconds: float, call: Callable[[Any], object]) -> float:
    """Calls per second over this many connections, one thread each, for about ``seconds``."""
    with ExitStack() as open_sockets:
        replays = [open_sockets.enter_context(closing(Replay(port, call))) for _ in range(connections)]
        counts: list[int] = []
        began = time.perf_counter()
        threads = [threading.Thread(target=_repeat, args=(one, began + seconds, counts)) for one in replays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(counts) < connections:
            raise RuntimeError("a client failed; its traceback is above")
        return sum(counts) / (time.perf_counter() - began)


def _repeat(replay: Replay, end: float, counts: list[int]) -> None:
    count = 0
    while time.perf_counter() < end:
        replay.again()
        count += 1
    counts.append(count)


def _storage(location: str) -> StorageDescriptor:
    return StorageDescriptor(
        cols=COLUMNS,
        location=location,
        inputFormat=f"{_PARQUET}MapredParquetInputFormat",
        outputFormat=f"{_PARQUET}MapredParquetOutputFormat",
        compressed=False,
        numBuckets=-1,
        serdeInfo=SerDeInfo("", f"{_PARQUET}serde.ParquetHiveSerDe", {"serialization.format": "1"}),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
