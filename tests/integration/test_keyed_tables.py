"""Kinds of tables over gRPC: what creation and later changes of properties and columns allow."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark import Client, DataFile
from lakemark.client.model import Operation
from lakemark.errors import InvalidArgument, InvalidFile, InvalidSchema
from lakemark.files.model import FileKind
from lakemark_core.storage import open_location
from tests.integration.grpc_server import connected, running_service

TIMESTAMP = pa.timestamp("us", tz="UTC")
KEYED = {"lakemark.primary-key": "id,day", "lakemark.bucket.count": "4", "lakemark.merge.ordering-column": "at"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with running_service(tmp_path) as service, connected(service) as client:
        yield client


def test_properties_of_a_kind_are_checked_against_the_columns(client: Client) -> None:
    client.databases.create("kinds")
    columns = "id int, at timestamp, v string, day date"

    with pytest.raises(InvalidArgument, match="lacks the partition column day"):
        client.tables.create(
            "kinds.t", columns, partitioned_by=["day"], properties={**KEYED, "lakemark.primary-key": "id"}
        )
    created = client.tables.create("kinds.t", columns, partitioned_by=["day"], properties=KEYED)
    assert created.properties["lakemark.bucket.count"] == "4"

    with pytest.raises(InvalidArgument, match="cannot be changed"):
        client.tables.set_properties("kinds.t", {"lakemark.bucket.count": "8"})
    with pytest.raises(InvalidArgument, match="cannot be changed"):
        client.tables.set_properties("kinds.t", remove=["lakemark.primary-key"])
    client.tables.set_properties("kinds.t", {"lakemark.write.mode": "merge-on-read"})

    for change, told in (
        ("DROP COLUMN at", "ordering-column"),
        ("RENAME COLUMN id TO key", "primary-key"),
        ("ALTER COLUMN id TYPE BIGINT", "primary-key"),
    ):
        with pytest.raises(InvalidSchema, match=told):
            client.tables.alter("kinds.t", change)
    client.tables.alter("kinds.t", "RENAME COLUMN v TO value; ADD COLUMN w INT")


def test_columns_to_cluster_by_are_columns_of_the_table(client: Client) -> None:
    client.databases.create("kinds")
    by = "lakemark.clustering.columns"
    with pytest.raises(InvalidArgument, match="no column 'z'"):
        client.tables.create("kinds.t", "x int, y int", properties={by: "x,z"})
    client.tables.create("kinds.t", "x int, y int", properties={by: "x,y"})
    with pytest.raises(InvalidArgument, match="no column 'z'"):
        client.tables.set_properties("kinds.t", {by: "z"})
    with pytest.raises(InvalidSchema, match=by):
        client.tables.alter("kinds.t", "DROP COLUMN y")
    client.tables.set_properties("kinds.t", {by: "x"})
    client.tables.alter("kinds.t", "DROP COLUMN y")


def test_the_client_merges_deltas_and_filters_on_top(client: Client) -> None:
    client.databases.create("kinds")
    properties = {**KEYED, "lakemark.write.mode": "merge-on-read"}
    columns = "id int, at timestamp, v string, day date"
    client.tables.create("kinds.t", columns, partitioned_by=["day"], properties=properties)
    day, noon = dt.date(2026, 11, 22), dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)

    def commit(operation: Operation, group: str, rows: list[tuple[int, int, str | None]]) -> int:
        with client.begin("kinds.t", operation) as writer:
            table = pa.table(
                {
                    "id": pa.array([one for one, _, _ in rows], pa.int32()),
                    "at": pa.array([noon + dt.timedelta(hours=hours) for _, hours, _ in rows], TIMESTAMP),
                    "v": pa.array([value for _, _, value in rows], pa.string()),
                }
            )
            delta = operation in ("upsert", "delete")
            if delta:
                table = table.append_column("lakemark_operation", pa.array([operation] * len(rows), pa.string()))
                table = table.append_column("lakemark_instant", pa.array([writer.instant] * len(rows), pa.int64()))
                table = table.append_column("lakemark_columns", pa.nulls(len(rows), pa.string()))
            path = f"{writer.instant}/day={day}/{group}/f.parquet"
            place = Path(open_location(writer.location)[1]).parent / path
            place.parent.mkdir(parents=True)
            pq.write_table(table, place)
            kind: FileKind = "delta" if delta else "base"
            size, bucket = place.stat().st_size, int(group[-1])
            file = DataFile(path, size, len(rows), (day,), file_group=group, kind=kind, bucket=bucket)
            return writer.commit([file]).version

    commit("append", "bucket-1", [(1, 0, "old"), (2, 0, "old"), (3, 0, "old")])
    commit("append", "bucket-2", [(9, 0, "old")])
    commit("upsert", "bucket-1", [(1, 1, "new"), (2, -1, "late"), (4, 0, "new")])
    commit("delete", "bucket-1", [(3, 2, None)])

    def rows(where: str | None = None, **at: int) -> list[tuple[int, str]]:
        table = client.read("kinds.t", where, columns=["id", "v"], **at)  # type: ignore[arg-type]
        return sorted((row["id"], row["v"]) for row in table.to_pylist())

    assert rows() == [(1, "new"), (2, "old"), (4, "new"), (9, "old")]
    assert rows("v = 'old'") == [(2, "old"), (9, "old")]
    assert rows(version=2) == [(1, "old"), (2, "old"), (3, "old"), (9, "old")]
    assert not client.aggregate("kinds.t").exact


def test_a_compaction_adds_deltas_of_its_own_deletes_alone(client: Client) -> None:
    client.databases.create("kinds")
    properties = {**KEYED, "lakemark.write.mode": "merge-on-read"}
    client.tables.create("kinds.t", "id int, at timestamp, day date", partitioned_by=["day"], properties=properties)
    day = dt.date(2026, 11, 22)

    def commit(operation: Operation, kind: FileKind, under: Callable[[int], int], removed: Sequence[str] = ()) -> str:
        with client.begin("kinds.t", operation) as writer:
            path = f"{writer.instant}/day={day}/{kind}/f.parquet"
            base = DataFile(f"{writer.instant}/day={day}/new/f", 1, 1, (day,), file_group="bucket-1", bucket=1)
            own = DataFile(
                path, 1, 1, (day,), file_group="bucket-1", bucket=1, kind=kind, base_instant=under(writer.instant)
            )
            writer.commit([own] if operation != "compact" else [base, own], removed=removed)
            return path

    first = commit("upsert", "delta", lambda _: 0)
    with pytest.raises(InvalidFile, match="no deltas but such as keep deletes"):
        commit("compact", "delta", lambda _: 0, [first])
    with pytest.raises(InvalidFile, match="that is the instant of the base file under it"):
        commit("upsert", "delta", lambda instant: instant)
    kept = commit("compact", "delta", lambda instant: instant, [first])

    assert {file.path for file in client.plan("kinds.t") if file.keeps_deletes} == {kept}
    assert [one.kind for one in client.plan("kinds.t")] == ["base", "delta"]
    assert [path.rpartition("/")[2] for path in client.plan("kinds.t").paths] == ["f"], "it need not be read"
    commit("upsert", "delta", lambda _: 1)
    assert len(client.plan("kinds.t").paths) == 3
