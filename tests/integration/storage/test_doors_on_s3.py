"""Statements through doors of tables in a bucket: what the service moves there, and what it writes again."""

from __future__ import annotations

import io
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.doors.statements import REFUSED, SparkClient, port_of
from tests.integration.storage.conftest import S3World

KEYED = {"lakemark.primary-key": "id,m", "lakemark.bucket.count": "2", "lakemark.write.mode": "merge-on-read"}


@pytest.fixture
def world(start: Callable[..., S3World]) -> S3World:
    return start(hms_enabled=True, hms_port=0)


def insert(world: S3World, spark: SparkClient, door: str, rows: dict[str, list[int]]) -> None:
    location = spark.client.get_table("default", door).sd.location
    below = location.partition(f"{world.bucket.name}/")[2]
    for at, (partition, ids) in enumerate(rows.items()):
        file = io.BytesIO()
        pq.write_table(pa.table({"id": pa.array(ids, pa.int32())}), file)
        world.bucket.put(f"{below}/{partition}/part-0000{at}.c000.snappy.parquet", file.getvalue())
    world.bucket.put(f"{below}/_SUCCESS", b"")
    spark.end(door)
    spark.end(door)


@pytest.mark.parametrize("door", ["append", "upsert"])
def test_rows_come_in_through_a_door(world: S3World, door: str) -> None:
    properties = KEYED if door == "upsert" else {}
    world.client.tables.create("default.t", "id int, m int", partitioned_by=["m"], properties=properties)
    spark = SparkClient(port_of(world.service))
    insert(world, spark, f"t__{door}", {"m=1": [1, 2, 3], "m=2": [4]})
    insert(world, spark, f"t__{door}", {"m=1": [5] if door == "append" else [2, 5]})
    read = world.client.read("default.t")
    assert sorted(zip(*(read.column(name).to_pylist() for name in ("m", "id")), strict=True)) == [
        (1, 1),
        (1, 2),
        (1, 3),
        (1, 5),
        (2, 4),
    ]
    if door == "upsert":
        insert(world, spark, "t__delete", {"m=1": [1, 2, 9]})
        assert sorted(world.client.read("default.t").column("id").to_pylist()) == [3, 4, 5]
        with pytest.raises(REFUSED, match="several rows with one key"):
            insert(world, spark, "t__upsert", {"m=1": [7, 7]})
    table = world.client.tables.get("default.t").location.partition(f"{world.bucket.name}/")[2]
    keys = [key.removeprefix(f"{table}/") for key in list(world.bucket.keys())]
    rows = {key for key in keys if key.endswith(".parquet")}
    live = {file.path for file in world.client.plan("default.t").files()}
    assert {key for key in rows if not key.startswith("_doors/")} == live
    assert len(rows - live) == (door == "upsert"), "of the statement that was refused"
    spark.close()
