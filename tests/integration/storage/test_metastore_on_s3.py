"""Databases, tables and partitions in a bucket, through the Metastore protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from hmsclient.genthrift.hive_metastore.ttypes import InvalidObjectException, MetaException
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lakemark_core import storage
from tests.integration.hms_objects import database, partition, table
from tests.integration.storage.conftest import S3World

Client = ThriftHiveMetastore.Client


@pytest.fixture
def world(start: Callable[..., S3World]) -> S3World:
    return start(hms_enabled=True, hms_port=0)


@pytest.fixture
def hms(world: S3World) -> Iterator[Client]:
    assert world.service.hms is not None
    transport = TBufferedTransport(TSocket("127.0.0.1", world.service.hms.port))
    transport.open()
    yield Client(TBinaryProtocol(transport))
    transport.close()


def put(world: S3World, location: str, *names: str) -> None:
    for name in names:
        world.bucket.put(f"{location.partition(world.bucket.name + '/')[2]}/{name}", b"x")


def test_a_database_lies_in_the_bucket_and_goes_with_what_is_in_it(world: S3World, hms: Client) -> None:
    hms.create_database(database("sales"))
    location = hms.get_database("sales").locationUri
    assert location == f"s3a://{world.bucket.name}/wh/sales.db"
    put(world, location, "left/over")
    hms.drop_database("sales", True, False)
    assert world.bucket.keys() == []


def test_a_table_is_created_renamed_and_dropped_with_its_files(world: S3World, hms: Client) -> None:
    assert world.requests_of(lambda: hms.create_table(table("t", db="db"))) == {}
    old = hms.get_table("db", "t").sd.location
    put(world, old, "a", "deep/b")
    put(world, f"{old}x", "of-another")
    changed = hms.get_table("db", "t")
    changed.tableName = "u"
    counts = world.requests_of(lambda: hms.alter_table("db", "t", changed))
    assert counts == {"ListObjects": 5, "CopyObject": 2, "DeleteObjects": 1}
    new = hms.get_table("db", "u").sd.location
    assert (old, new) == (f"s3a://{world.bucket.name}/wh/db.db/t", f"s3a://{world.bucket.name}/wh/db.db/u")
    assert world.bucket.keys() == ["wh/db.db/tx/of-another", "wh/db.db/u/a", "wh/db.db/u/deep/b"]
    hms.drop_table("db", "u", True)
    assert world.bucket.keys() == ["wh/db.db/tx/of-another"]


def test_what_is_written_to_the_old_place_during_a_rename_stays(
    world: S3World, hms: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a writer that asks nobody: what was not copied is not deleted."""
    hms.create_table(table("t", db="db"))
    old = hms.get_table("db", "t").sd.location
    put(world, old, "a", "b", "c")
    changed = hms.get_table("db", "t")
    changed.tableName = "u"
    finish = storage.Move.finish

    def meanwhile(move: storage.Move) -> None:
        put(world, old, "bb")
        world.bucket.put("wh/db.db/t/c", b"written again")
        finish(move)

    monkeypatch.setattr(storage.Move, "finish", meanwhile)
    hms.alter_table("db", "t", changed)
    assert world.bucket.keys() == ["wh/db.db/t/bb", "wh/db.db/t/c", "wh/db.db/u/a", "wh/db.db/u/b", "wh/db.db/u/c"]


def test_a_rename_onto_files_is_refused_and_leaves_everything(world: S3World, hms: Client) -> None:
    hms.create_table(table("t", db="db"))
    put(world, hms.get_table("db", "t").sd.location, "a")
    world.bucket.put("wh/db.db/u/there", b"x")
    changed = hms.get_table("db", "t")
    changed.tableName = "u"
    with pytest.raises(Exception, match="exists already"):
        hms.alter_table("db", "t", changed)
    assert hms.get_table("db", "t").sd.location == f"s3a://{world.bucket.name}/wh/db.db/t"
    assert world.bucket.keys() == ["wh/db.db/t/a", "wh/db.db/u/there"]


def test_a_rename_whose_copies_fail_leaves_everything(world: S3World, hms: Client) -> None:
    hms.create_table(table("t", db="db"))
    put(world, hms.get_table("db", "t").sd.location, "a", "b", "c")
    changed = hms.get_table("db", "t")
    changed.tableName = "u"

    def refuse_b(request: object) -> str | None:
        return "internal error" if str(request).count("CopyObject") and str(request).count("/u/b") else None

    with world.proxy.disturbing(refuse_b), pytest.raises(MetaException, match="the store failed"):  # type: ignore[arg-type]
        hms.alter_table("db", "t", changed)
    assert hms.get_table("db", "t").sd.location == f"s3a://{world.bucket.name}/wh/db.db/t"
    assert world.bucket.keys() == ["wh/db.db/t/a", "wh/db.db/t/b", "wh/db.db/t/c"]


def test_partitions_are_added_without_requests_and_dropped_with_their_files(world: S3World, hms: Client) -> None:
    hms.create_table(table("t", db="db", keys="m int"))
    wanted = [partition([str(month)], of="t", db="db") for month in range(50)]
    assert world.requests_of(lambda: hms.add_partitions(wanted)) == {}
    location = hms.get_partition("db", "t", ["7"]).sd.location
    assert location == f"s3a://{world.bucket.name}/wh/db.db/t/m=7"
    put(world, location, "a")
    put(world, f"{location}7", "of-another")
    hms.drop_partition("db", "t", ["7"], True)
    assert world.bucket.keys() == ["wh/db.db/t/m=77/of-another"]


def test_a_lake_table_is_made_in_the_bucket_and_dropped(world: S3World, hms: Client) -> None:
    hms.create_table(table("lake", db="db", cols="id bigint", parameters={"lakemark.type": "lake"}))
    assert world.client.tables.get("db.lake").location.startswith(f"{world.bucket.uri}/wh/db.db/lake-")
    hms.drop_table("db", "lake", True)
    assert [each.name for each in world.client.tables.dropped("db")] == ["db.lake"]


def test_a_lake_table_is_not_made_where_files_are(world: S3World, hms: Client) -> None:
    world.bucket.put("wh/db.db/lake/part-0.parquet", b"x")
    with pytest.raises(Exception, match="a lake table begins without files"):
        hms.create_table(table("lake", db="db", cols="id bigint", parameters={"lakemark.type": "lake"}))
    assert world.bucket.keys() == ["wh/db.db/lake/part-0.parquet"]


def test_file_slices_are_answered_in_the_scheme_that_spark_reads(world: S3World, hms: Client) -> None:
    name = world.table()
    world.append(name, 1, 2)
    view = hms.get_table("db", "t")
    own = world.client.tables.get(name).location
    assert own.startswith("s3://")
    assert view.parameters["lakemark.location"] == own.replace("s3://", "s3a://")
    hidden = view.viewExpandedText.rpartition("`.`")[2].strip("`")
    assert hms.get_table("db", hidden).sd.location == own.replace("s3://", "s3a://")
    slices = sorted(each.sd.location for each in hms.get_partitions("db", hidden, -1))
    paths = sorted(path.rpartition("/")[0] for path in world.client.plan(name).paths)
    assert slices == [path.replace("s3://", "s3a://") for path in paths]


def test_what_spark_calls_s3a_is_the_same_place(world: S3World, hms: Client) -> None:
    spark = f"s3a://{world.bucket.name}"
    hms.create_database(database("far", locationUri=f"{spark}/far.db/"))
    assert world.client.databases.get("far").location == f"{world.bucket.uri}/far.db"
    assert hms.get_database("far").locationUri == f"{spark}/far.db"
    # Spark names the default place itself.
    hms.create_table(
        table("lake", db="far", cols="id bigint", location=f"{spark}/far.db/lake", parameters={"lakemark.type": "lake"})
    )
    location = world.client.tables.get("far.lake").location
    assert location.startswith(f"{world.bucket.uri}/far.db/lake-")
    with pytest.raises(Exception, match=r"lake table far\.lake has its directory there"):
        world.client.tables.create("far.other", {"id": "bigint"}, location=location.replace("s3://", "s3n://"))


def test_a_wrong_location_in_another_scheme_costs_neither_a_database_nor_a_lake_table(
    world: S3World, hms: Client
) -> None:
    world.table("db.lake")
    world.append("db.lake", 1)
    before = world.bucket.keys()
    own = world.client.tables.get("db.lake").location.replace("s3://", "s3n://")
    for name, location in (("whole", f"s3a://{world.bucket.name}/wh/db.db"), ("other", own)):
        with pytest.raises(InvalidObjectException, match="has its directory there"):
            hms.create_table(table(name, db="db", location=location))
    assert world.bucket.keys() == before


def test_a_table_that_spark_placed_moves_with_its_name(world: S3World, hms: Client) -> None:
    hms.create_table(table("t", db="db", location=f"s3a://{world.bucket.name}/wh/db.db/t"))
    world.bucket.put("wh/db.db/t/a", b"x")
    changed = hms.get_table("db", "t")
    changed.tableName = "u"
    hms.alter_table("db", "t", changed)
    assert hms.get_table("db", "u").sd.location == f"s3a://{world.bucket.name}/wh/db.db/u"
    assert world.bucket.keys() == ["wh/db.db/u/a"]
