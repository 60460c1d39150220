"""A dropped table can be brought back whole as long as it is kept, and never blocks others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from lakemark_core import storage
from lakemark_core.errors import (
    AlreadyExists,
    CommitConflict,
    DatabaseNotFound,
    FailedPrecondition,
    InvalidArgument,
    LocationTaken,
    QuotaExceeded,
    TableNotFound,
)
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, LakeTableRecord
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.admission import usage
from lakemark_server.admission.limits import Limits
from lakemark_server.admission.quotas import Quotas
from lakemark_server.backup import Repository, restore, take
from lakemark_server.catalog import clean_schedule, left_directories
from lakemark_server.catalog.drop_policy import PROTECTED_PROPERTY, RETAIN_PROPERTY
from lakemark_server.catalog.dropped_tables import RETAIN_MS_DEFAULT, Size
from lakemark_server.catalog.service import Catalog
from lakemark_server.context import caller
from lakemark_server.kv import open_store
from lakemark_server.store.keyspace import OF_TABLE
from lakemark_server.timeline.references import ReferenceDraft
from lakemark_server.verify import verify
from tests.lakes import SCHEMA, Lake

NAME = ("", "default", "t")


def drop(lake: Lake, **how: object) -> LakeTableRecord:
    return lake.catalog.dropped.drop(*NAME, **how)  # type: ignore[arg-type]


def directory(record: LakeTableRecord) -> Path:
    return Path(record.location.removeprefix("file:"))


def create(lake: Lake, name: str, location: str = "", **properties: str) -> LakeTableRecord:
    record = LakeTableRecord(database="default", name=name, location=location, properties=properties)
    return lake.catalog.create_lake_table(record, SCHEMA).record


def test_it_comes_back_with_its_versions_branches_tags_and_files(lake: Lake) -> None:
    table = lake.table()
    lake.put(table, [1])
    lake.put(table, [2])
    lake.timeline.references.create(table, ReferenceDraft(name="dev", kind=c.BRANCH))
    lake.timeline.references.create(table, ReferenceDraft(name="first", kind=c.TAG, from_version=1))
    (directory(table.record) / "file").touch()
    before = lake.paths(table)
    dropped = drop(lake)
    assert dropped.dropped.until_ms == lake.clock() + RETAIN_MS_DEFAULT
    with pytest.raises(TableNotFound):
        lake.catalog.get_lake_table(*NAME)
    assert verify(lake.store) == []

    back = lake.catalog.dropped.undrop(*NAME)
    assert back.table_id == table.table_id
    assert not back.record.HasField("dropped")
    assert (directory(back.record) / "file").exists()
    assert lake.paths(back) == before
    assert [one.name for one in lake.timeline.references.find(back, c.REFERENCE_KIND_UNSPECIFIED)] == [
        "main",
        "dev",
        "first",
    ]
    assert lake.put(back, [3]).version == 3
    assert verify(lake.store) == []


def test_its_name_is_free_and_its_place_is_its_own(lake: Lake) -> None:
    """A new table of that name gets another directory, also if Spark creates a warehouse table of that name."""
    first = lake.table()
    lake.put(first, [1])
    drop(lake)
    second = lake.table()
    assert first.record.location != second.record.location
    wanted = LakeTableRecord(database="default", name="wanted", location=first.record.location)
    with pytest.raises(LocationTaken, match=r"lake table default\.t has its directory there"):
        lake.catalog.create_lake_table(wanted, SCHEMA)
    with pytest.raises(
        AlreadyExists, match=r"default\.t exists already; bring the dropped table back under another name"
    ):
        lake.catalog.dropped.undrop(*NAME)
    back = lake.catalog.dropped.undrop(*NAME, new_name="T_Old")
    assert (back.name, back.table_id) == ("default.t_old", first.table_id)
    assert len(lake.paths(back)) == 1
    assert lake.paths(second) == []
    assert verify(lake.store) == []


def test_of_several_the_last_one_comes_back_or_the_one_that_is_named(lake: Lake) -> None:
    ids = []
    for _ in range(3):
        ids.append(lake.table().table_id)
        drop(lake)
        lake.clock.advance(1)
    assert lake.catalog.dropped.undrop(*NAME, new_name="last").table_id == ids[2]
    assert lake.catalog.dropped.undrop(*NAME, new_name="first", table_id=ids[0]).table_id == ids[0]
    with pytest.raises(TableNotFound, match=r"no dropped table default\.t with table id 77"):
        lake.catalog.dropped.undrop(*NAME, table_id=77)
    assert [record.table_id for record in lake.catalog.dropped.listed("")] == [ids[1]]


def test_after_its_time_it_is_deleted(lake: Lake) -> None:
    table = create(lake, "t", **{RETAIN_PROPERTY: "1000"})
    drop(lake)
    lake.clock.advance(999)
    assert lake.catalog.dropped.purge_due() == []
    assert directory(table).exists()
    lake.clock.advance(1)
    assert lake.catalog.dropped.purge_due() == ["default.t"]
    assert not directory(table).exists()
    assert lake.catalog.dropped.purge_due() == []
    with pytest.raises(TableNotFound, match="lakemark tables list default --dropped"):
        lake.catalog.dropped.undrop(*NAME)
    for space in OF_TABLE:
        assert lake.store.read(lambda tx, space=space: tx.get_range(space.prefix, space.prefix + b"\xff")) == []  # type: ignore[misc]
    assert verify(lake.store) == []


def test_what_came_back_is_not_deleted_when_its_time_would_have_been_over(lake: Lake) -> None:
    lake.table()
    drop(lake)
    back = lake.catalog.dropped.undrop(*NAME)
    lake.clock.advance(2 * RETAIN_MS_DEFAULT)
    assert lake.catalog.dropped.purge_due() == []
    assert directory(back.record).exists()


@pytest.mark.parametrize("how", ["now", "retain 0"])
def test_at_once_where_nothing_is_to_be_kept(lake: Lake, how: str) -> None:
    table = create(lake, "t", **({RETAIN_PROPERTY: "0"} if how == "retain 0" else {}))
    assert not drop(lake, now=how == "now").HasField("dropped")
    assert not directory(table).exists()
    assert lake.catalog.dropped.listed("") == []
    assert verify(lake.store) == []


def test_purged_before_its_time(lake: Lake) -> None:
    table = lake.table()
    drop(lake)
    lake.catalog.dropped.purge(*NAME, request_id="p")
    assert not directory(table.record).exists()
    lake.catalog.dropped.purge(*NAME, request_id="p")
    with pytest.raises(TableNotFound):
        lake.catalog.dropped.purge(*NAME)
    for _ in range(2):
        lake.table()
        drop(lake)
    with pytest.raises(
        InvalidArgument, match=r"2 dropped tables had the name default\.t: say which one by its table id"
    ):
        lake.catalog.dropped.purge(*NAME)
    assert verify(lake.store) == []


def test_a_protected_table_is_not_dropped(lake: Lake) -> None:
    create(lake, "t", **{PROTECTED_PROPERTY: "true"})
    for now in (False, True):
        with pytest.raises(FailedPrecondition, match=r"default\.t is protected and cannot be dropped"):
            drop(lake, now=now)
    lake.catalog.set_properties(*NAME, {}, remove=[PROTECTED_PROPERTY])
    drop(lake)


@pytest.mark.parametrize(
    ("name", "value"), [(PROTECTED_PROPERTY, "maybe"), (RETAIN_PROPERTY, "-1"), (RETAIN_PROPERTY, "7d")]
)
def test_properties_that_cannot_be_read_are_refused(lake: Lake, name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        create(lake, "t", **{name: value})


def test_files_at_a_location_that_the_user_chose_are_never_deleted(lake: Lake, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    create(lake, "t", str(place))
    (place / "file").touch()
    drop(lake)
    other = create(lake, "u", str(place))  # as it always could be
    with pytest.raises(LocationTaken, match=r"lake table default\.u has its directory there"):
        lake.catalog.dropped.undrop(*NAME)
    assert verify(lake.store) == []
    lake.catalog.dropped.purge(*NAME)
    assert (place / "file").exists()
    assert lake.catalog.get_lake_table("", "default", "u").table_id == other.table_id
    assert verify(lake.store) == []


def test_a_lost_writer_of_a_dropped_table_deletes_nothing_of_the_next_one(lake: Lake, tmp_path: Path) -> None:
    """Instants are told apart by their milliseconds alone: two tables of one place may have the same."""
    place = tmp_path / "mine"
    create(lake, "t", str(place))
    first = lake.catalog.get_lake_table("", "default", "t")
    instant = lake.open(first, timeout_ms=1_000)
    drop(lake)
    create(lake, "u", str(place))
    (place / str(instant)).mkdir()
    (place / str(instant) / "of-the-next").touch()
    lake.clock.advance(60_000)
    assert lake.timeline.roll_back_expired() == [(first.table_id, instant)]
    assert (place / str(instant) / "of-the-next").exists()


def test_files_that_are_to_be_kept_outlive_the_table(lake: Lake) -> None:
    table = lake.table()
    drop(lake, delete_files=False)
    lake.catalog.dropped.purge(*NAME)
    assert directory(table.record).exists()


def test_writers_go_on_after_it_came_back(lake: Lake) -> None:
    """Open writers survive; one whose heartbeat ran out meanwhile is rolled back as usual."""
    table = lake.table()
    living, lost = lake.open(table, timeout_ms=10_000), lake.open(table, timeout_ms=1_000)
    drop(lake)
    lake.clock.advance(2_000)
    assert lake.timeline.roll_back_expired() == [(table.table_id, lost)]
    assert verify(lake.store) == []
    back = lake.catalog.dropped.undrop(*NAME)
    assert lake.commit(back, living, []).version == 1
    assert lake.timeline.instant(table.table_id, lost)[0].state == t.ROLLED_BACK
    assert verify(lake.store) == []


def test_open_writers_are_given_back_when_it_is_deleted(lake: Lake) -> None:
    lake.open(lake.table())
    drop(lake)
    assert verify(lake.store) == []
    lake.catalog.dropped.purge(*NAME)
    assert lake.store.read(lambda tx: usage.read(tx, "hive")).open_instants == 0
    assert verify(lake.store) == []


def test_cleaning_rests_and_goes_on(lake: Lake) -> None:
    table = create(lake, "t", **{clean_schedule.KEEP_PROPERTY: "1"})
    drop(lake)
    assert lake.store.read(lambda tx: clean_schedule.due(tx, lake.clock() + 1, 10)) == []
    lake.catalog.dropped.undrop(*NAME)
    due = lake.store.read(lambda tx: clean_schedule.due(tx, lake.clock() + 1, 10))
    assert [table_id for _, table_id in due] == [table.table_id]


def test_a_database_is_dropped_before_its_dropped_tables_and_its_directory_goes_with_the_last(lake: Lake) -> None:
    database = lake.catalog.create_database(DatabaseRecord(name="d"))
    lake.catalog.create_lake_table(LakeTableRecord(database="d", name="t"), SCHEMA)
    lake.catalog.dropped.drop("", "d", "t")
    lake.catalog.drop_database("", "d")
    place = Path(database.location.removeprefix("file:"))
    assert place.is_dir(), "it holds the files of a dropped table"
    with pytest.raises(DatabaseNotFound):
        lake.catalog.dropped.undrop("", "d", "t")
    assert lake.catalog.dropped.undrop("", "d", "t", new_database="default").name == "default.t"
    drop(lake)
    lake.catalog.create_database(DatabaseRecord(name="d"))
    lake.catalog.dropped.undrop(*NAME, new_database="d")
    lake.catalog.dropped.drop("", "d", "t")
    lake.catalog.drop_database("", "d")
    lake.catalog.dropped.purge("", "d", "t")
    assert not place.exists()
    assert verify(lake.store) == []


def test_asked_again_it_happens_once(lake: Lake) -> None:
    lake.table()
    until = {drop(lake, request_id="d").dropped.until_ms for _ in range(2)}
    assert len(until) == 1
    back = {lake.catalog.dropped.undrop(*NAME, request_id="u").table_id for _ in range(2)}
    assert len(back) == 1
    assert verify(lake.store) == []


def test_how_many_can_lie_there_is_limited(lake: Lake, tmp_path: Path) -> None:
    quotas = Quotas(lake.store, Limits(dropped_tables=1))
    catalog = Catalog(lake.store, f"{tmp_path}/warehouse", lake.clock, quotas)
    for name in ("a", "b"):
        create(lake, name)
    catalog.dropped.drop("", "default", "a")
    with pytest.raises(QuotaExceeded, match="has 1 dropped tables, its quota is 1"):
        catalog.dropped.drop("", "default", "b")
    catalog.dropped.drop("", "default", "b", now=True)
    catalog.dropped.undrop("", "default", "a")
    catalog.dropped.drop("", "default", "a")
    assert verify(lake.store) == []


def test_who_dropped_it_and_how_large_it_is(lake: Lake, tmp_path: Path) -> None:
    def measure(catalog: str, database: str, name: str) -> Size:
        assert (catalog, database, name) == NAME
        return Size(version=7, files=8, size_bytes=9)

    catalog = Catalog(lake.store, f"{tmp_path}/warehouse", lake.clock, measure=measure)
    lake.table()
    with caller.named(lambda: "ann@host"):
        catalog.dropped.drop(*NAME)
    (found,) = catalog.dropped.listed("")
    how = found.dropped
    assert (how.by, how.dropped_ms, how.version, how.files, how.bytes) == ("ann@host", lake.clock(), 7, 8, 9)


def test_lists_go_by_pages_and_by_database(lake: Lake) -> None:
    lake.catalog.create_database(DatabaseRecord(name="d"))
    for database, name in (("default", "b"), ("d", "a"), ("default", "a"), ("default", "a")):
        lake.catalog.create_lake_table(LakeTableRecord(database=database, name=name), SCHEMA)
        lake.catalog.dropped.drop("", database, name)
    names, after = [], None
    while page := lake.catalog.dropped.listed("", after=after, limit=3):
        names += [f"{one.database}.{one.name}" for one in page]
        after = (page[-1].database, page[-1].name, page[-1].table_id)
    assert names == ["d.a", "default.a", "default.a", "default.b"]
    assert [one.name for one in lake.catalog.dropped.listed("", "default")] == ["a", "a", "b"]
    assert lake.catalog.dropped.listed("", "default", after=("default", "b", 1 << 40)) == []


def test_files_that_cannot_be_deleted_hold_up_nobody(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakemark_core.errors import Unavailable

    first, second = create(lake, "t"), create(lake, "u")
    drop(lake)
    lake.catalog.dropped.drop("", "default", "u")
    lake.clock.advance(RETAIN_MS_DEFAULT)
    delete = storage.delete_directory

    def fails(uri: str, may_go_on: Callable[[], None]) -> None:
        if uri == first.location:
            raise Unavailable("not now")
        delete(uri, may_go_on)

    with monkeypatch.context() as patched:
        patched.setattr(storage, "delete_directory", fails)
        assert lake.catalog.dropped.purge_due() == ["default.t", "default.u"]
        assert directory(first).exists()
        assert not directory(second).exists()
        lake.clock.advance(11 * 60_000)
        assert left_directories.finish(lake.store, lake.clock()) == []
    lake.clock.advance(11 * 60_000)
    assert left_directories.finish(lake.store, lake.clock()) == [first.location]
    assert verify(lake.store) == []


def test_a_commit_on_a_dropped_table_is_refused(lake: Lake) -> None:
    table = lake.table()
    instant = lake.open(table)
    drop(lake)
    with pytest.raises((TableNotFound, CommitConflict)):
        lake.commit(table, instant, [])


def test_in_a_restored_store_its_time_begins_anew(lake: Lake, tmp_path: Path) -> None:
    """The backup may be older than the time for which dropped tables are kept."""
    lake.table()
    drop(lake)
    repository = Repository(tmp_path / "backups")
    with repository.writing():
        manifest = take(lake.store, repository, "1.2.3")
    lake.catalog.dropped.undrop(*NAME)
    lake.clock.advance(3 * RETAIN_MS_DEFAULT)
    with closing(open_store(f"sqlite:///{tmp_path}/again.db")) as store:
        restore(store, repository, manifest, clock=lake.clock)
        again = Catalog(store, f"{tmp_path}/warehouse", lake.clock)
        for days in (0, 6):
            lake.clock.advance(days * 86_400_000)
            assert again.dropped.purge_due() == []
        assert verify(store) == []
        lake.clock.advance(86_400_000)
        assert again.dropped.purge_due() == ["default.t"]
