"""Copies of a whole Metastore, by ``lakemark import-hms`` and ``export-hms``: from one Lakemark to another here.

With Hive's own metastore: ``tests/e2e/test_migration.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lakemark import Client
from lakemark.cli import app
from lakemark_core.errors import InvalidArgument
from lakemark_hms.migration import Migration, Orders, Summary, runner
from lakemark_hms.migration.copier import Copier, What
from lakemark_hms.migration.sides import Side
from lakemark_hms.outside import Call, Metastore, OutsideRefused, OutsideUnavailable
from lakemark_server.process import Service
from lakemark_thrift import ttypes as t
from tests.integration.listener.conftest import Outside
from tests.integration.listener.objects import add_partitions, alter, create, database, function, get, table, view

MONTHS = [(str(month),) for month in range(1, 13)]


def fill(there: Metastore, root: Path) -> None:
    there.call("create_database", database=database("sales", ownerName="ann", description="what is sold"))
    create(there, table("orders", keys="month int", location=f"file:{root}/orders", parameters={"team": "ops"}))
    add_partitions(there, "orders", MONTHS)
    create(there, table("plain", parameters={"numRows": "7"}))
    create(there, view("late", "SELECT a FROM orders"))
    there.call("create_function", func=function("f"))
    statistics(there, "plain", "", 3)
    statistics(there, "orders", "month=1", 4)


def statistics(side: Metastore, name: str, partition: str, distinct: int, column: str = "a") -> None:
    data = t.ColumnStatisticsData(longStats=t.LongColumnStatsData(lowValue=1, highValue=9, numNulls=0, numDVs=distinct))
    told = t.ColumnStatistics(
        statsDesc=t.ColumnStatisticsDesc(
            isTblLevel=not partition, dbName="sales", tableName=name, partName=partition or None
        ),
        statsObj=[t.ColumnStatisticsObj(colName=column, colType="int", statsData=data)],
        engine="hive",
    )
    side.call("set_aggr_stats_for", request=t.SetPartitionsStatsRequest(colStats=[told], engine="hive"))


def grant(side: Metastore) -> None:
    """``ann`` is an analyst, and analysts may read."""
    side.call("create_role", role=t.Role(roleName="analyst", createTime=0, ownerName="admin"))
    user, role = t.PrincipalType.USER, t.PrincipalType.ROLE
    side.call(
        "grant_role",
        role_name="analyst",
        principal_name="ann",
        principal_type=user,
        grantor="admin",
        grantorType=user,
        grant_option=False,
    )
    info = t.PrivilegeGrantInfo(privilege="SELECT", createTime=0, grantor="admin", grantorType=user, grantOption=False)
    for kind, name in ((t.HiveObjectType.DATABASE, None), (t.HiveObjectType.TABLE, "orders")):
        privilege = t.HiveObjectPrivilege(
            hiveObject=t.HiveObjectRef(objectType=kind, dbName="sales", objectName=name),
            principalName="analyst",
            principalType=role,
            grantInfo=info,
            authorizer="SQL",
        )
        side.call("grant_privileges", privileges=t.PrivilegeBag(privileges=[privilege]))


def constrain(side: Metastore) -> None:
    key = t.SQLPrimaryKey(table_db="sales", table_name="plain", column_name="a", key_seq=1, pk_name="pk")
    side.call("add_primary_key", req=t.AddPrimaryKeyRequest(primaryKeyCols=[key]))
    foreign = t.SQLForeignKey(
        pktable_db="sales",
        pktable_name="plain",
        pkcolumn_name="a",
        fktable_db="sales",
        fktable_name="orders",
        fkcolumn_name="a",
        key_seq=1,
        fk_name="fk",
        pk_name="pk",
    )
    side.call("add_foreign_key", req=t.AddForeignKeyRequest(foreignKeyCols=[foreign]))
    here = {"table_db": "sales", "table_name": "plain", "column_name": "b"}
    unique = t.SQLUniqueConstraint(**here, key_seq=1, uk_name="uk")
    side.call("add_unique_constraint", req=t.AddUniqueConstraintRequest(uniqueConstraintCols=[unique]))
    given = t.SQLNotNullConstraint(**here, nn_name="nn")
    side.call("add_not_null_constraint", req=t.AddNotNullConstraintRequest(notNullConstraintCols=[given]))
    default = t.SQLDefaultConstraint(**here, default_value="'x'", dc_name="dc")
    side.call("add_default_constraint", req=t.AddDefaultConstraintRequest(defaultConstraintCols=[default]))
    check = t.SQLCheckConstraint(**here, check_expression="b <> ''", dc_name="cc")
    side.call("add_check_constraint", req=t.AddCheckConstraintRequest(checkConstraintCols=[check]))


def counts(summary: Summary) -> dict[str, dict[str, int]]:
    return {kind: dict(several) for kind, several in summary.counts.items()}


Refusing = Callable[[str, str, Callable[[dict[str, Any]], bool]], None]
"""Makes the Metastore at an address refuse calls of a method, by their arguments."""


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Refusing:
    def refuse(uri: str, method: str, which: Callable[[dict[str, Any]], bool]) -> None:
        plain = Metastore.run

        def run(side: Metastore, call: Call) -> Any:
            if side.uri == uri and call.method == method and which(call.args):
                raise OutsideRefused("this is not for you", uri=uri, method=method, error="MetaException")
            return plain(side, call)

        monkeypatch.setattr(Metastore, "run", run)

    return refuse


@pytest.fixture
def migration(outside: Outside, service: Service) -> Migration:
    return Migration(outside.uri, service.hms_uri, Orders())


def test_everything_is_copied_and_compares_equal(
    migration: Migration, there: Metastore, here: Metastore, tmp_path: Path
) -> None:
    fill(there, tmp_path)
    assert counts(migration.copy()) == {
        "database": {"equal": 1, "made": 1},
        "function": {"made": 1},
        "table": {"made": 3},
        "partition": {"made": 12},
        "column statistics": {"altered": 2},
        "role": {"equal": 2},
    }
    compared = migration.compare()
    assert compared.wrong == 0, compared.told
    assert counts(compared)["partition"] == {"equal": 12}
    copy = get(here, "sales", "orders")
    assert (copy.owner, copy.parameters["team"], copy.sd.location) == ("ann", "ops", f"file:{tmp_path}/orders")
    assert copy.createTime == get(there, "sales", "orders").createTime
    assert get(here, "sales", "late").viewOriginalText == "SELECT a FROM orders"


def test_roles_privileges_and_constraints(migration: Migration, there: Metastore, tmp_path: Path) -> None:
    fill(there, tmp_path)
    grant(there)
    constrain(there)
    made = counts(migration.copy())
    words = ("unique", "NOT NULL", "default", "check")
    kinds = ("role", "role member", "privilege", "primary key", "foreign key", *(f"{one} constraint" for one in words))
    assert [made[kind].get("made") for kind in kinds] == [1, 1, 2, 1, 1, 1, 1, 1, 1]
    compared = migration.compare()
    assert compared.wrong == 0, compared.told
    assert [counts(compared)[kind]["equal"] for kind in kinds] == [3, 1, 2, 1, 1, 1, 1, 1, 1]


def test_another_run_catches_up(migration: Migration, there: Metastore, here: Metastore, tmp_path: Path) -> None:
    fill(there, tmp_path)
    migration.copy()
    changed = get(there, "sales", "plain")
    changed.parameters["team"] = "web"
    alter(there, changed)
    add_partitions(there, "orders", [("13",)])
    moved = there.call("get_partitions_by_names", db_name="sales", tbl_name="orders", names=["month=2"])
    moved[0].parameters["note"] = "late"
    there.call("alter_partitions", db_name="sales", tbl_name="orders", new_parts=moved)
    statistics(there, "plain", "", 5)
    assert counts(migration.compare()) == {
        "database": {"equal": 2},
        "function": {"equal": 1},
        "table": {"equal": 2, "different": 1},
        "partition": {"equal": 11, "different": 2},
        "column statistics": {"equal": 1, "different": 1},
        "role": {"equal": 2},
    }
    again = migration.copy()
    assert counts(again)["table"] == {"equal": 2, "altered": 1}
    assert counts(again)["partition"] == {"equal": 11, "made": 1, "altered": 1}
    assert migration.compare().wrong == 0
    assert get(here, "sales", "plain").parameters["team"] == "web"


def test_what_only_the_copy_has_stays_unless_it_is_to_go(
    migration: Migration, outside: Outside, service: Service, there: Metastore, here: Metastore, tmp_path: Path
) -> None:
    fill(there, tmp_path)
    migration.copy()
    create(here, table("own"))
    add_partitions(here, "orders", [("99",)])
    place = Path(get(here, "sales", "own").sd.location.removeprefix("file:"))
    told = {(one.kind, one.name, one.reason) for one in migration.copy().told}
    assert told == {
        ("table", "sales.own", "only the copy has it"),
        ("partition", "sales.orders", "only the copy has month=99"),
    }
    dropping = Migration(outside.uri, service.hms_uri, Orders(drops=True))
    assert counts(dropping.copy())["table"] == {"equal": 3, "dropped": 1}
    assert dropping.compare().wrong == 0
    assert place.is_dir(), "files stay"


def test_partitions_by_another_spelling_are_the_same(
    outside: Outside,
    service: Service,
    there: Metastore,
    here: Metastore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy does not escape the ``:``, and writes the digits of others in lower case."""
    fill(there, tmp_path)
    create(there, table("days", keys="day string"))
    add_partitions(there, "days", [("10:00",), ("a/b",), ("c",)])
    statistics(there, "days", "day=10%3A00", 3)
    dropping = Migration(outside.uri, service.hms_uri, Orders(drops=True))
    dropping.copy()
    plain = Side.partition_names

    def spelled(side: Side, db: str, name: str) -> list[str]:
        names = plain(side, db, name)
        if side.metastore.uri == service.hms_uri:
            return [one.replace("%3A", ":").replace("%2F", "%2f") for one in names]
        return names

    monkeypatch.setattr(Side, "partition_names", spelled)
    assert dropping.compare().wrong == 0
    assert counts(dropping.copy())["partition"] == {"equal": 15}
    names = here.call("get_partition_names", db_name="sales", tbl_name="days", max_parts=-1)
    assert sorted(names) == ["day=10%3A00", "day=a%2Fb", "day=c"]
    assert dropping.compare().wrong == 0


def test_partitions_that_are_listed_and_not_given_are_told(
    migration: Migration, service: Service, there: Metastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(there, tmp_path)
    migration.copy()
    add_partitions(there, "orders", [("13",), ("14",)])
    plain = Side.partitions

    def without(side: Side, db: str, name: str, names: Sequence[str]) -> list[t.Partition]:
        hidden = ["4"] if side.metastore.uri == service.hms_uri else ["3", "13"]
        return [one for one in plain(side, db, name, names) if one.values[0] not in hidden]

    monkeypatch.setattr(Side, "partitions", without)
    copied = migration.copy()
    assert counts(copied)["partition"] == {"equal": 10, "made": 1, "left": 3}
    assert [one.reason.partition(";")[0] for one in copied.told] == [
        "the source lists them, but does not give them: month=13",
        "the source lists them, but does not give them: month=3",
        "the copy lists them, but does not give them: month=4",
    ]
    assert counts(migration.compare())["partition"] == {"equal": 11, "different": 3}


def test_an_object_that_is_refused_is_told_and_the_others_go_on(
    outside: Outside, service: Service, there: Metastore, here: Metastore, tmp_path: Path, refusing: Refusing
) -> None:
    fill(there, tmp_path)
    constrain(there)
    there.call("create_function", func=function("g"))
    refusing(outside.uri, "get_table_req", lambda args: args["req"].tblName == "orders")
    refusing(outside.uri, "get_function", lambda args: args["funcName"] == "f")
    refusing(outside.uri, "get_unique_constraints", lambda args: True)
    refusing(outside.uri, "get_database", lambda args: args["name"] == "default")
    summary = Migration(outside.uri, service.hms_uri, Orders(drops=True)).copy()
    left = {(one.kind, one.name) for one in summary.told if "not for you" in one.reason}
    assert left == {
        ("database", "default"),
        ("table", "sales.orders"),
        ("function", "sales.f"),
        ("foreign key", "sales.orders"),
        *(("unique constraint", f"sales.{name}") for name in ("late", "orders", "plain")),
    }
    assert {one.what for one in summary.told} == {What.LEFT}
    assert here.call("get_all_tables", db_name="sales") == ["late", "plain"]
    assert here.call("get_functions", dbName="sales", pattern="*") == ["g"]


@pytest.mark.parametrize("method", ["get_all_tables", "get_database"])
def test_nothing_is_dropped_where_the_source_refuses_to_list(
    migration: Migration,
    outside: Outside,
    service: Service,
    there: Metastore,
    here: Metastore,
    tmp_path: Path,
    refusing: Refusing,
    method: str,
) -> None:
    fill(there, tmp_path)
    there.call("create_database", database=database("web"))
    create(there, table("clicks", db="web"))
    migration.copy()
    create(here, table("own"))
    create(here, table("own", db="web"))
    refusing(outside.uri, method, lambda args: "sales" in args.values())
    summary = Migration(outside.uri, service.hms_uri, Orders(drops=True)).copy()
    assert [(one.kind, one.name, one.what) for one in summary.told] == [("database", "sales", What.LEFT)]
    assert counts(summary)["table"] == {"equal": 4 if method == "get_database" else 1, "dropped": 1}
    assert here.call("get_all_tables", db_name="sales") == ["late", "orders", "own", "plain"]
    assert here.call("get_all_tables", db_name="web") == ["clicks"]


def test_a_table_in_the_way_is_left_and_told(
    migration: Migration, there: Metastore, here: Metastore, tmp_path: Path
) -> None:
    fill(there, tmp_path)
    here.call("create_database", database=database("sales", ownerName="ann", description="what is sold"))
    create(here, table("orders"))
    summary = migration.copy()
    (left,) = [one for one in summary.told if one.name == "sales.orders"]
    assert left.reason.startswith("another table has the name: ")
    assert counts(summary)["table"] == {"made": 2, "left": 1}
    assert "partition" not in summary.counts
    assert get(here, "sales", "orders").partitionKeys == []


def test_a_run_that_was_stopped_is_resumed(
    outside: Outside, service: Service, there: Metastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(there, tmp_path)
    journal = tmp_path / "journal"
    migration = Migration(outside.uri, service.hms_uri, Orders(workers=1, journal=journal))
    plain, looked = Copier.table, []

    def stops(copier: Copier, db: str, name: str) -> object:
        looked.append(name)
        if len(looked) == 3:
            raise OutsideUnavailable("it went away")
        return plain(copier, db, name)

    with monkeypatch.context() as patched:
        patched.setattr(Copier, "table", stops)
        with pytest.raises(OutsideUnavailable, match="it went away"):
            migration.copy()
    assert journal.read_text() == "sales\tlate\nsales\torders\n"
    with journal.open("a") as cut:
        cut.write("sales\tpla")
    again = Migration(outside.uri, service.hms_uri, Orders(workers=1, journal=journal)).copy()
    assert again.resumed == 2
    assert counts(again)["table"] == {"made": 1}
    assert not journal.exists()
    assert migration.compare().wrong == 0


def test_lake_tables_are_left_to_listeners(
    client: Client, outside: Outside, service: Service, here: Metastore, there: Metastore
) -> None:
    client.databases.create("sales")
    client.tables.create("sales.lake", "id bigint")
    create(here, table("plain"))
    summary = Migration(service.hms_uri, outside.uri, Orders(patterns=["sales"])).copy()
    (left,) = summary.told
    assert (left.name, left.reason.partition(" (")[0]) == (
        "sales.lake",
        "a lake table is kept up to date by a listener",
    )
    assert there.call("get_all_tables", db_name="sales") == ["plain"]


def test_statistics_functions_constraints_and_databases_that_only_the_copy_has(
    migration: Migration, outside: Outside, service: Service, there: Metastore, here: Metastore, tmp_path: Path
) -> None:
    fill(there, tmp_path)
    migration.copy()
    statistics(here, "plain", "", 4, column="b")
    statistics(here, "orders", "", 4)
    statistics(here, "orders", "month=2", 4)
    here.call("create_function", func=function("g"))
    constrain(here)
    here.call("create_database", database=database("web"))
    expected = {
        ("column statistics", "sales.plain", "only the copy has b"),
        ("column statistics", "sales.orders", "only the copy has a"),
        ("column statistics", "sales.orders", "only the copy has month=2/a"),
        ("function", "sales.g", "only the copy has it"),
        ("primary key", "sales.plain: pk", "only the copy has it"),
        ("foreign key", "sales.orders: fk", "only the copy has it"),
        ("unique constraint", "sales.plain: uk", "only the copy has it"),
        ("NOT NULL constraint", "sales.plain: nn", "only the copy has it"),
        ("default constraint", "sales.plain: dc", "only the copy has it"),
        ("check constraint", "sales.plain: cc", "only the copy has it"),
        ("database", "web", "only the copy has it, and databases are not dropped"),
    }
    for summary, what in ((migration.copy(), What.LEFT), (migration.compare(), What.DIFFERENT)):
        assert {(one.kind, one.name, one.reason) for one in summary.told} == expected
        assert {one.what for one in summary.told} == {what}
    dropped = Migration(outside.uri, service.hms_uri, Orders(drops=True)).copy()
    assert counts(dropped)["column statistics"] == {"equal": 2, "dropped": 3}
    assert [one.name for one in dropped.told] == ["web"]
    assert [one.name for one in migration.compare().told] == ["web"]
    assert here.call("get_all_databases") == ["default", "sales", "web"]


def test_constraints_of_another_table_of_the_name_stay(
    outside: Outside, service: Service, there: Metastore, here: Metastore, tmp_path: Path
) -> None:
    fill(there, tmp_path)
    here.call("create_database", database=database("sales", ownerName="ann", description="what is sold"))
    create(here, table("plain", keys="k int"))
    key = t.SQLPrimaryKey(table_db="sales", table_name="plain", column_name="a", key_seq=1, pk_name="own")
    here.call("add_primary_key", req=t.AddPrimaryKeyRequest(primaryKeyCols=[key]))
    summary = Migration(outside.uri, service.hms_uri, Orders(drops=True)).copy()
    assert [(one.kind, one.name) for one in summary.told] == [("table", "sales.plain")]
    request = t.PrimaryKeysRequest(db_name="sales", tbl_name="plain")
    assert [one.pk_name for one in here.call("get_primary_keys", request=request).primaryKeys] == ["own"]


def test_lake_tables_of_the_copy_are_its_own(
    client: Client, outside: Outside, service: Service, there: Metastore, here: Metastore, tmp_path: Path
) -> None:
    fill(there, tmp_path)
    dropping = Migration(outside.uri, service.hms_uri, Orders(drops=True))
    dropping.copy()
    client.tables.create("sales.lake", "id bigint")
    create(here, view("own", "SELECT a FROM plain"))
    assert counts(dropping.copy())["table"] == {"equal": 3, "dropped": 1}
    assert dropping.compare().wrong == 0
    assert here.call("get_all_tables", db_name="sales") == ["lake", "late", "orders", "plain"]


def test_only_what_fits_the_patterns(
    outside: Outside, service: Service, there: Metastore, here: Metastore, tmp_path: Path
) -> None:
    fill(there, tmp_path)
    there.call("create_database", database=database("web"))
    assert Migration(outside.uri, service.hms_uri, Orders(patterns=["sales.o*"])).copy().wrong == 0
    assert here.call("get_all_databases") == ["default", "sales"]
    assert here.call("get_all_tables", db_name="sales") == ["orders"]


def test_an_outside_that_is_away_is_told(service: Service, outside: Outside) -> None:
    outside.stop()
    with pytest.raises(OutsideUnavailable, match="does not answer"):
        Migration(outside.uri, service.hms_uri, Orders()).copy()
    with pytest.raises(InvalidArgument, match="cannot be copied to itself"):
        Migration(outside.uri, outside.uri, Orders())


def test_many_partitions_go_by_pages(
    migration: Migration, there: Metastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakemark_hms.migration import copier

    monkeypatch.setattr(copier, "PARTITIONS_AT_ONCE", 5)
    monkeypatch.setattr(copier, "STATISTICS_AT_ONCE", 5)
    monkeypatch.setattr(runner, "KEPT_MAX", 1)
    fill(there, tmp_path)
    assert counts(migration.compare())["table"] == {"different": 3}
    assert len(migration.compare().told) == 1
    assert counts(migration.copy())["partition"] == {"made": 12}
    assert migration.compare().wrong == 0


def test_by_command(
    outside: Outside, service: Service, there: Metastore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(there, tmp_path)
    command = ["import-hms", outside.uri, "--to", service.hms_uri]
    assert app.run([*command, "--compare"]) == 1
    assert "are not the same" in capsys.readouterr().out
    assert app.run(command) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"{service.hms_uri} has all that {outside.uri} has" in told
    assert app.run(["--json", *command]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["compared"]["counts"]["partition"] == {"equal": 12}
    assert app.run(["export-hms", outside.uri, "--from", service.hms_uri, "--compare"]) == 0
