"""Does what Spark does for an INSERT through a door, step by step, so that tests can stop between two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from hmsclient.genthrift.hive_metastore.ttypes import (
    AddPartitionsRequest,
    EnvironmentContext,
    InvalidOperationException,
    MetaException,
    Partition,
    StorageDescriptor,
)
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lakemark_server.context.clock import now_ms
from lakemark_server.process import Service

STATISTICS = "spark.sql.statistics."
REFUSED = (InvalidOperationException, MetaException)
Another = Callable[[], int]


class Later:
    """The time, which a test can move forward."""

    def __init__(self) -> None:
        self.by_ms = 0

    def __call__(self) -> int:
        return now_ms() + self.by_ms


def port_of(service: Service) -> int:
    """Of the service's Metastore."""
    assert service.hms is not None
    return service.hms.port


class SparkClient:
    """A connection to the Metastore at ``port``, of an application of ``user``."""

    def __init__(self, port: int, user: str = "ann") -> None:
        self.user = user
        self.connect(port)

    def connect(self, port: int, timeout_s: float = 30.0) -> None:
        """Goes on with a new connection, as after the old one broke."""
        sock = TSocket("127.0.0.1", port)
        sock.setTimeout(timeout_s * 1_000)
        self.transport = TBufferedTransport(sock)
        self.transport.open()
        self.client = ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(self.transport, fallback=False))
        self.client.set_ugi(self.user, [])

    def close(self) -> None:
        """As the end of a process, without a farewell."""
        self.transport.close()

    def look_up(self, name: str) -> Path:
        """The directory that the door is given at."""
        return Path(self.client.get_table("default", name).sd.location.removeprefix("file:"))

    def write(
        self, directory: Path, rows: Sequence[int], *, partition: str = "", done: bool = True, more: Any = None
    ) -> None:
        """One task's file with a column ``id``; ``done``: the job is committed, too."""
        table = pa.table({"id": pa.array(rows, pa.int32()), **(more or {})})
        self.write_table(directory, table, partition=partition, done=done)

    def write_table(
        self, directory: Path, table: pa.Table, *, partition: str = "", done: bool = True, **options: Any
    ) -> None:
        """One task's file. ``options``: of pyarrow's writer."""
        place = directory / partition
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, place / f"part-00000-{uuid4()}.c000.snappy.parquet", **options)
        if done:
            self.done(directory)

    def done(self, directory: Path) -> None:
        (directory / "_SUCCESS").touch()

    def add_partitions(self, name: str, values: Sequence[str]) -> None:
        self.look_up(name)
        parts = [
            Partition(values=[one], dbName="default", tableName=name, sd=StorageDescriptor(), parameters={})
            for one in values
        ]
        self.client.add_partitions_req(AddPartitionsRequest("default", name, parts, True, True))

    def end(self, name: str, size: int | None = None) -> Any:
        """The look-up and the call by which Spark takes the statistics off. Returns the call, to be made again.

        ``size``: Spark has measured the table, and says so in the same call.
        """
        shown = self.last_call(name)
        if size is not None:
            shown.parameters[f"{STATISTICS}totalSize"] = str(size)
        self.send(name, shown)
        return shown

    def last_call(self, name: str) -> Any:
        """The look-up, and the call, which ``send`` makes."""
        shown = self.client.get_table("default", name)
        shown.parameters = {key: value for key, value in shown.parameters.items() if not key.startswith(STATISTICS)}
        return shown

    def send(self, name: str, shown: Any) -> None:
        self.client.alter_table_with_environment_context("default", name, shown, EnvironmentContext({}))

    def insert(self, name: str, rows: Sequence[int]) -> None:
        """A whole statement, into a table without partitions."""
        self.write(self.look_up(name), rows)
        self.end(name)

    def insert_tables(self, name: str, tables: Mapping[str, pa.Table]) -> None:
        """A whole statement: files by their partitions. Spark calls twice if there are such."""
        directory = self.look_up(name)
        for partition, table in tables.items():
            self.write_table(directory, table, partition=partition, done=False)
        self.done(directory)
        self.end(name)
        if any(tables):
            self.end(name)
