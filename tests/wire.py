"""A gRPC client of bare stubs, for tests below the client package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import pyarrow as pa
import pytest

from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_proto.v1.catalog_pb2_grpc import CatalogServiceStub
from lakemark_proto.v1.snapshot_pb2_grpc import SnapshotServiceStub
from lakemark_proto.v1.timeline_pb2_grpc import TimelineServiceStub
from tests.lakes import files

COLUMNS = (("id", "bigint"), ("x", "double"), ("name", "string"), ("m", "int"))  # ids 1 to 4


class Refused(Exception):
    """A call that failed, with the error in its trailer."""

    def __init__(self, error: grpc.RpcError) -> None:
        self.status: grpc.StatusCode = error.code()  # type: ignore[attr-defined]
        self.text: str = error.details() or ""  # type: ignore[attr-defined]
        super().__init__(f"{self.status}: {self.text}")
        trailer = dict(error.trailing_metadata() or ())  # type: ignore[attr-defined]
        self.pushback_ms = str(trailer.get("grpc-retry-pushback-ms", ""))
        self.detail = p.ErrorDetail.FromString(trailer.get("lakemark-error-bin", b""))


@contextmanager
def refused(code: str, *words: str) -> Iterator[Callable[[], Refused]]:
    """The block ends with a call that is refused with this code, and a message with these words."""
    found: list[Refused] = []
    with pytest.raises(grpc.RpcError) as raised:
        yield lambda: found[0]
    one = Refused(raised.value)
    found.append(one)
    assert one.detail.code == code, one
    assert one.detail.message == one.text
    assert one.detail.outcome in {"fatal", "retryable", "unknown"}
    for word in words:
        assert word in one.text, one.text


class Wire:
    """One channel to a service, with the table that a test works on."""

    def __init__(self, address: str, table: str = "t", options: Sequence[tuple[str, Any]] = ()) -> None:
        large = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]
        self.channel = grpc.insecure_channel(address, options=[*large, *options])
        self.catalog = CatalogServiceStub(self.channel)
        self.timeline = TimelineServiceStub(self.channel)
        self.snapshots = SnapshotServiceStub(self.channel)
        self.table = p.TableName(database="default", table=table)

    def close(self) -> None:
        self.channel.close()

    def create(self, policy: str = "partition", partitions: Sequence[str] = ("m",), **more: Any) -> c.Table:
        columns = [p.Column(name=name, type=p.Type(primitive=kind)) for name, kind in COLUMNS]
        schema = p.Schema(columns=columns, partition_columns=partitions)
        properties = {"lakemark.conflict.policy": policy}
        return self.catalog.CreateTable(
            c.CreateTableRequest(name=self.table, schema=schema, properties=properties, **more)
        )

    def open(self, operation: t.Operation.ValueType = t.APPEND, *, start: bool = True, **more: Any) -> t.Instant:
        return self.timeline.OpenInstant(
            t.OpenInstantRequest(table=self.table, operation=operation, start=start, **more)
        )

    def start(self, instant: int, work: t.WorkProfile | None = None) -> t.Instant:
        return self.timeline.StartInstant(t.StartInstantRequest(table=self.table, instant=instant, profile=work))

    def stage(self, instant: int, sequence: int, *given: p.DataFile, **more: Any) -> int:
        request = t.StageFilesRequest(table=self.table, instant=instant, added=files(*given), sequence=sequence, **more)
        return self.timeline.StageFiles(request).staged_files

    def commit(self, instant: int, *given: p.DataFile, **more: Any) -> t.CommitResponse:
        added = {"added": files(*given)} if given else {}
        return self.timeline.Commit(t.CommitRequest(table=self.table, instant=instant, **added, **more))

    def rollback(self, instant: int, reason: str = "") -> t.Instant:
        return self.timeline.RollbackInstant(t.RollbackInstantRequest(table=self.table, instant=instant, reason=reason))

    def get(self, instant: int) -> t.Instant:
        return self.timeline.GetInstant(t.GetInstantRequest(table=self.table, instant=instant))

    def snapshot(self, **at: Any) -> s.Snapshot:
        return self.snapshots.GetSnapshot(
            s.GetSnapshotRequest(table=self.table, at=s.SnapshotReference(**at) if at else None)
        )

    def plan(self, sql: str = "", at: s.SnapshotReference | None = None, **more: Any) -> s.PlanFilesResponse:
        predicate = p.Predicate(sql=sql) if sql else None
        return self.snapshots.PlanFiles(s.PlanFilesRequest(table=self.table, at=at, predicate=predicate, **more))

    def paths(self, version: int | None = None) -> list[str]:
        """The paths of all files of a version (the latest), sorted, over all pages."""
        at = None if version is None else s.SnapshotReference(version=version)
        return sorted(self.read(at)[1])

    def read(self, at: s.SnapshotReference | None = None) -> tuple[int, list[str]]:
        """The version and the paths of a whole plan."""
        found, token = [], ""
        while True:
            page = self.plan(at=at, page_token=token)
            with pa.ipc.open_stream(page.files.arrow) as reader:
                found += reader.read_all().column("path").to_pylist()
            token = page.next_page_token
            if not token:
                return page.version, found
