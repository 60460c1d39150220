"""What the ``hms`` benchmark asks of a metastore: one client's code and one set of objects for every system."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
COLUMNS: Final = [FieldSchema(f"column_{number:02}", "bigint", None) for number in range(20)]
KEYS: Final = [FieldSchema("dt", "string", None), FieldSchema("hour", "int", None)]
FILTERS: Final = {
    1: 'dt = "d042" and hour = 17',
    100: 'dt = "d042"',
    1_200: 'dt >= "d040" and dt < "d052"',
}
"""By how many partitions they select."""

_PARQUET: Final = "org.apache.hadoop.hive.ql.io.parquet."


@dataclass(frozen=True)
class System:
    """A metastore under test; ``location`` is the directory of the benchmark's database."""

    name: str
    port: int
    location: str


@contextmanager
def connected(port: int) -> Iterator[Any]:
    """A client whose protocol is in C; it raises rather than be slow."""
    transport = TBufferedTransport(TSocket("127.0.0.1", port))
    transport.open()
    try:
        yield ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(transport, fallback=False))
    finally:
        transport.close()


def create_table(system: System) -> None:
    with connected(system.port) as client:
        client.create_database(Database(DATABASE, "", system.location, {}))
        client.create_table(
            Table(
                dbName=DATABASE,
                tableName=TABLE,
                owner="bench",
                sd=_storage(f"{system.location}/{TABLE}"),
                partitionKeys=KEYS,
                parameters={"EXTERNAL": "TRUE"},
                tableType="EXTERNAL_TABLE",
            )
        )


def partition_batches(system: System) -> Iterator[list[Partition]]:
    """All partitions of the table, BATCH at a time, in order."""
    batch = []
    for day in range(DAYS):
        for hour in range(HOURS):
            place = f"{system.location}/{TABLE}/dt=d{day:03}/hour={hour}"
            batch.append(Partition([f"d{day:03}", str(hour)], DATABASE, TABLE, 0, 0, _storage(place), {}))
            if len(batch) == BATCH:
                yield batch
                batch = []


def rate(port: int, connections: int, seconds: float, call: Callable[[Any], object]) -> float:
    """Calls per second over this many connections, one thread each, for about ``seconds``."""
    with ExitStack() as open_clients:
        clients = [open_clients.enter_context(connected(port)) for _ in range(connections)]
        counts: list[int] = []
        began = time.perf_counter()
        threads = [threading.Thread(target=_repeat, args=(one, call, began + seconds, counts)) for one in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(counts) < connections:
            raise RuntimeError("a client failed; its traceback is above")
        return sum(counts) / (time.perf_counter() - began)


def _repeat(client: Any, call: Callable[[Any], object], end: float, counts: list[int]) -> None:
    count = 0
    while time.perf_counter() < end:
        call(client)
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
