"""Snapshots and plans over a real gRPC server: versions, times, predicates, pages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from tests.lakes import Clock, file, stat
from tests.wire import Wire, refused


@pytest.fixture
def filled(wire: Wire, clock: Clock) -> Wire:
    """Versions 1 to 3, 100 ms apart: months 1 and 2 (ids 0-9, 10-19), 3 (20-29), 1 replaced (30-39)."""
    wire.create()
    for number, (operation, months) in enumerate(
        [(t.APPEND, (1, 2)), (t.APPEND, (3,)), (t.OVERWRITE_PARTITIONS, (1,))], 1
    ):
        clock.advance(100)
        instant = wire.open(operation).instant
        first = {1: 0, 2: 20, 3: 30}[number]
        given = [
            file(instant, f"v{number}", month, stats=[stat(1, first + 10 * place, first + 10 * place + 9, 0)])
            for place, month in enumerate(months)
        ]
        wire.commit(instant, *given)
    return wire


def groups(wire: Wire, **at: Any) -> list[str]:
    """``m=1/v1`` for each file of a snapshot."""
    _, paths = wire.read(s.SnapshotReference(**at) if at else None)
    return sorted("/".join(path.split("/")[1:3]) for path in paths)


V1, V2, V3 = ["m=1/v1", "m=2/v1"], ["m=1/v1", "m=2/v1", "m=3/v2"], ["m=1/v3", "m=2/v1", "m=3/v2"]

# -- versions and times ------------------------------------------------------------------------------------------------


def test_every_version_stays_as_it_was(filled: Wire) -> None:
    assert [groups(filled, version=version) for version in (0, 1, 2, 3)] == [[], V1, V2, V3]
    assert groups(filled) == V3
    assert groups(filled, branch="main") == V3
    latest = filled.snapshot()
    assert (latest.version, latest.files, latest.rows, latest.bytes) == (3, 3, 15, 30)
    assert (latest.branch, latest.operation, latest.table.table) == (
        "main",
        t.OVERWRITE_PARTITIONS,
        filled.table.table,
    )
    assert [column.name for column in latest.schema.columns] == ["id", "x", "name", "m"]
    nothing = filled.snapshot(version=0)
    assert (nothing.version, nothing.files, nothing.instant, nothing.schema.schema_id) == (0, 0, 0, 1)


def test_time_travel(filled: Wire, clock: Clock) -> None:
    times = [filled.snapshot(version=version).committed_ms for version in (1, 2, 3)]
    assert times[2] == clock()
    versions = {
        times[0] - 100: 0,  # it was created then
        times[0] - 1: 0,
        times[0]: 1,
        times[1] - 1: 1,
        times[1]: 2,
        times[2]: 3,
        times[2] + 10**9: 3,
    }
    assert {at: filled.snapshot(timestamp_ms=at).version for at in versions} == versions
    assert groups(filled, timestamp_ms=times[1]) == V2
    for before in (times[0] - 101, 0, -1):
        with refused("version_not_found", "did not exist"):
            filled.snapshot(timestamp_ms=before)


@pytest.mark.parametrize(
    ("at", "code", "word"),
    [
        ({"version": 4}, "version_not_found", "the latest is 3"),
        ({"version": -1}, "invalid_argument", "negative"),
        ({"branch": "dev"}, "branch_not_found", "'dev'"),
        ({"tag": "v1"}, "not_found", "no tag"),
    ],
)
def test_snapshots_that_are_not_there(filled: Wire, at: dict[str, Any], code: str, word: str) -> None:
    with refused(code, word):
        filled.snapshot(**at)
    with refused(code, word):
        filled.plan(at=s.SnapshotReference(**at))
    with refused(code, word):
        filled.snapshots.PlanPartitions(s.PlanPartitionsRequest(table=filled.table, at=s.SnapshotReference(**at)))


def test_another_branch(filled: Wire) -> None:
    with refused("branch_not_found", "'dev'", "main"):
        filled.open(branch="dev")
    with refused("branch_not_found", "'dev'", "main"):
        filled.timeline.ListVersions(t.ListVersionsRequest(table=filled.table, branch="dev"))
    assert filled.open(branch="main").branch == "main"


def test_names_that_lead_nowhere(wire: Wire) -> None:
    def name(database: str, table: str) -> p.TableName:
        return p.TableName(database=database, table=table)

    for wanted, code, word in [
        (name("nowhere", "t"), "database_not_found", "'nowhere'"),
        (name("default", "nothing"), "table_not_found", "default.nothing"),
        (name("default", ""), "invalid_argument", "not named"),
        (name("", "t"), "invalid_argument", "not named"),
        (name("default", "a b;c"), "table_not_found", "a b;c"),
        (name("default", "n" * 20_000), "table_not_found", "nnn"),
        (name("d" * 20_000, "t"), "database_not_found", "ddd"),
        (p.TableName(catalog="other", database="default", table="t"), "database_not_found", "default"),
    ]:
        with refused(code, word):
            wire.snapshots.GetSnapshot(s.GetSnapshotRequest(table=wanted))
        with refused(code, word):
            wire.timeline.OpenInstant(t.OpenInstantRequest(table=wanted, operation=t.APPEND))
        with refused(code, word):
            wire.timeline.Commit(t.CommitRequest(table=wanted, instant=1))


@pytest.mark.parametrize("name", ["a b", "a.b", "ä", "t@v1", "a/b", "../t", "n" * 129, "a\0b", "t;drop"])
def test_illegal_names(wire: Wire, name: str) -> None:
    wire.table.table = name
    with refused("invalid_name", "name"):
        wire.create()


def test_names_do_not_mind_case(filled: Wire) -> None:
    filled.table.table = filled.table.table.upper()
    filled.table.database = "DEFAULT"
    assert filled.snapshot().version == 3


def test_a_dropped_table_is_gone_and_a_new_one_begins_anew(filled: Wire) -> None:
    open_instant = filled.open().instant
    filled.catalog.DropTable(c.DropTableRequest(name=filled.table))
    with refused("table_not_found"):
        filled.commit(open_instant)
    with refused("table_not_found"):
        filled.snapshot(version=1)
    filled.create()
    assert filled.snapshot().version == 0
    with refused("instant_not_found"):
        filled.commit(open_instant)


def test_a_renamed_table_keeps_its_versions(filled: Wire) -> None:
    instant = filled.open().instant
    filled.catalog.RenameTable(c.RenameTableRequest(name=filled.table, new_name=filled.table.table + "_new"))
    filled.table.table += "_new"
    assert groups(filled, version=2) == V2
    assert filled.commit(instant, file(instant, "v4", 9)).version == 4


# -- predicates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "expected", "residual"),
    [
        ("id >= 35", ["m=1/v3"], True),
        ("id < 20 AND m = 2", ["m=2/v1"], False),
        ("m IN (1, 3)", ["m=1/v3", "m=3/v2"], False),
        ("x > 1", V3, True),
        ("m = 77", [], False),
    ],
)
def test_a_predicate_prunes(filled: Wire, sql: str, expected: list[str], residual: bool) -> None:
    plan = filled.plan(sql, encoding=s.PROTOBUF)
    assert sorted("/".join(one.path.split("/")[1:3]) for one in plan.files.list.files) == expected
    assert (plan.summary.files_total, plan.summary.files_planned) == (3, len(expected))
    assert (plan.summary.residual != "") == residual
    assert plan.summary.rows_planned == 5 * len(expected)
    partitions = filled.snapshots.PlanPartitions(
        s.PlanPartitionsRequest(table=filled.table, predicate=p.Predicate(sql=sql))
    )
    assert [one.name for one in partitions.partitions] == sorted(path.split("/")[0] for path in expected)


@pytest.mark.parametrize(
    ("predicate", "word"),
    [
        (p.Predicate(sql="nope = 3"), "nope"),
        (p.Predicate(sql="id = 'abc'"), "abc"),
        (p.Predicate(sql="id >"), ""),
        (p.Predicate(sql="(" * 5_000), ""),
        (p.Predicate(sql="id = 1; DROP TABLE t"), ""),
        (p.Predicate(), "empty"),
        (p.Predicate(expression=p.Expression()), "empty node"),
        (p.Predicate(expression=p.Expression(comparison=p.Comparison(column="id", operator=99))), "no operator"),  # type: ignore[arg-type]
        (p.Predicate(expression=p.Expression(null_test=p.NullTest(column="nope"))), "nope"),
        (p.Predicate(expression=p.Expression(null_test=p.NullTest(column=""))), ""),
        (p.Predicate(expression=p.Expression(comparison=p.Comparison(column="id", operator=1))), "no value"),
    ],
)
def test_a_predicate_that_makes_no_sense(filled: Wire, predicate: p.Predicate, word: str) -> None:
    with refused("invalid_predicate", word):
        filled.snapshots.PlanFiles(s.PlanFilesRequest(table=filled.table, predicate=predicate))
    with refused("invalid_predicate", word):
        filled.snapshots.PlanPartitions(s.PlanPartitionsRequest(table=filled.table, predicate=predicate))


def test_statistics_travel_if_asked_for(filled: Wire) -> None:
    plan = filled.plan("m = 2", statistics_columns=["ID"], encoding=s.PROTOBUF)
    (one,) = plan.files.list.files
    (statistic,) = one.statistics
    assert (statistic.column_id, statistic.min.integer, statistic.max.integer) == (1, 10, 19)
    assert (statistic.null_count, one.added_version, one.matches_entirely) == (0, 1, True)
    assert (one.file_group, one.format, one.kind) == ("v1", "parquet", p.BASE)
    assert plan.location == filled.snapshot().location
    with refused("invalid_predicate", "'nope'"):
        filled.plan(statistics_columns=["nope"])


def test_both_encodings_say_the_same(filled: Wire) -> None:
    messages = filled.plan(encoding=s.PROTOBUF, statistics_columns=["id"]).files.list.files
    with pa.ipc.open_stream(filled.plan(encoding=s.ARROW, statistics_columns=["id"]).files.arrow) as reader:
        rows = reader.read_all().to_pylist()
    assert [(one.path, one.row_count, one.statistics[0].min.integer, one.added_version) for one in messages] == [
        (row["path"], row["row_count"], row["min.1"], row["added_version"]) for row in rows
    ]


# -- pages -------------------------------------------------------------------------------------------------------------


def add(wire: Wire, *months: int) -> None:
    instant = wire.open().instant
    wire.commit(instant, *(file(instant, f"g{month}", month) for month in months))


@pytest.mark.parametrize("encoding", [s.ARROW, s.PROTOBUF])
@pytest.mark.parametrize("size", [1, 4, 10, 11])
def test_pages_stay_with_their_version(wire: Wire, encoding: s.FileEncoding.ValueType, size: int) -> None:
    """Commits between two pages are not visible in them."""
    wire.create()
    add(wire, *range(6))
    add(wire, *range(6, 10))
    wanted = sorted(wire.paths())
    found: list[str] = []
    token, pages = "", 0
    while True:
        page = wire.plan(page_size=size, page_token=token, encoding=encoding)
        assert page.version == 2
        assert page.HasField("summary") == (pages == 0)
        if encoding == s.PROTOBUF:
            found += [one.path for one in page.files.list.files]
        else:
            with pa.ipc.open_stream(page.files.arrow) as reader:
                found += reader.read_all().column("path").to_pylist()
        add(wire, 50 + pages)
        token, pages = page.next_page_token, pages + 1
        if not token:
            break
    assert sorted(found) == wanted
    assert pages == -(-10 // size)


def test_a_limit_holds_over_pages(wire: Wire) -> None:
    wire.create()
    add(wire, *range(10))
    first = wire.plan(limit=5, page_size=3)
    second = wire.plan(limit=5, page_size=3, page_token=first.next_page_token)
    assert (first.page_files, second.page_files, second.next_page_token) == (3, 2, "")
    assert first.summary.files_planned == 10


def test_tokens_belong_to_their_request(filled: Wire) -> None:
    token = filled.plan("m > 0", page_size=1).next_page_token
    assert filled.plan("m > 0", page_size=2, page_token=token, encoding=s.PROTOBUF).page_files == 2
    with refused("invalid_argument", "another request"):
        filled.plan("m > 1", page_token=token)
    with refused("invalid_argument", "another request"):
        filled.plan("m > 0", limit=2, page_token=token)
    for rubbish in ("x", "%%%", "ä", token[:-3], "MS4tMS5h"):
        with refused("invalid_argument", "page token"):
            filled.plan("m > 0", page_token=rubbish)


def test_a_token_dies_with_its_table(filled: Wire) -> None:
    token = filled.plan(page_size=1).next_page_token
    filled.catalog.DropTable(c.DropTableRequest(name=filled.table))
    filled.create()
    for month in range(3):
        add(filled, month)
    with refused("invalid_argument", "another request"):
        filled.plan(page_token=token)


def test_partitions_are_summed_up(filled: Wire) -> None:
    found = filled.snapshots.PlanPartitions(s.PlanPartitionsRequest(table=filled.table))
    assert found.version == 3
    assert [(one.name, one.values[0].integer, one.files, one.rows, one.bytes) for one in found.partitions] == [
        (f"m={month}", month, 1, 5, 10) for month in (1, 2, 3)
    ]


# -- aggregates --------------------------------------------------------------------------------------------------------


def test_counts_and_bounds_from_metadata_alone(filled: Wire) -> None:
    request = s.AggregateRequest(table=filled.table, columns=["id"])
    whole = filled.snapshots.Aggregate(request)
    (group,) = whole.groups
    assert (whole.version, whole.exact, group.files, group.rows) == (3, True, 3, 15)
    (bounds,) = group.columns
    assert (bounds.min.integer, bounds.max.integer, bounds.null_count) == (10, 39, 0)

    request.by_partition = True
    request.predicate.sql = "m > 1"
    months = filled.snapshots.Aggregate(request).groups
    assert [(one.name, one.partition[0].integer, one.files) for one in months] == [("m=2", 2, 1), ("m=3", 3, 1)]

    request.predicate.sql = "id > 35"
    assert not filled.snapshots.Aggregate(request).exact, "one file holds other rows, too"


@pytest.mark.parametrize("column", ["nope", "m"])
def test_aggregates_of_columns_without_bounds_are_refused(filled: Wire, column: str) -> None:
    with refused("invalid_argument", column):
        filled.snapshots.Aggregate(s.AggregateRequest(table=filled.table, columns=[column]))


def test_negative_sizes_of_pages_and_limits_are_refused(wire: Wire) -> None:
    wire.create()
    name = wire.table
    with refused("invalid_argument", "limit is -1: it must be 0 (all files) or more"):
        wire.plan(limit=-1)
    for ask in (
        lambda: wire.plan(page_size=-1),
        lambda: wire.snapshots.ListChanges(s.ListChangesRequest(table=name, page_size=-1)),
        lambda: wire.snapshots.ListFileSlices(s.ListFileSlicesRequest(table=name, page_size=-1)),
        lambda: wire.timeline.ListVersions(t.ListVersionsRequest(table=name, page_size=-1)),
        lambda: wire.timeline.ListInstants(t.ListInstantsRequest(table=name, page_size=-1)),
        lambda: wire.catalog.ListTables(c.ListTablesRequest(database="default", page_size=-1)),
        lambda: wire.catalog.ListDatabases(c.ListDatabasesRequest(page_size=-1)),
    ):
        with refused("invalid_argument", "page_size is -1: it must be 0 (the service's choice) or more"):
            ask()
