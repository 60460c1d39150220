"""Decisions of a listener: against a Metastore made of dictionaries, by itself and in any order of changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lakemark_hms.listener import facts
from lakemark_hms.listener.decisions import (
    EQUAL,
    Decision,
    Owner,
    decide_database,
    decide_function,
    decide_partitions,
    decide_progress,
    decide_rename,
    decide_table,
)
from lakemark_hms.outside import Call, copy_of
from lakemark_thrift.ttypes import (
    Database,
    FieldSchema,
    Function,
    Partition,
    PrincipalPrivilegeSet,
    SerDeInfo,
    SkewedInfo,
    StorageDescriptor,
    Table,
)

OWNER = Owner("hive", "1")


def storage(location: str = "file:/t", cols: str = "a") -> StorageDescriptor:
    columns = [FieldSchema(name=name, type="int") for name in cols]
    serde = SerDeInfo(serializationLib="serde", parameters={})
    return StorageDescriptor(cols=columns, location=location, inputFormat="in", outputFormat="out", serdeInfo=serde)


def table(name: str = "t", *, cols: str = "a", keys: str = "", location: str = "file:/t", **parameters: str) -> Table:
    return Table(
        tableName=name,
        dbName="d",
        owner="ann",
        sd=storage(location, cols),
        partitionKeys=[FieldSchema(name=key, type="int") for key in keys],
        parameters=parameters,
        tableType="EXTERNAL_TABLE",
    )


def partition(value: str, location: str = "", **parameters: str) -> Partition:
    return Partition(
        values=[value], dbName="d", tableName="t", sd=storage(location or f"file:/t/{value}"), parameters=parameters
    )


@dataclass
class Theirs:
    """An outside Metastore. It fills in what Hive fills in."""

    tables: dict[str, Table] = field(default_factory=dict)
    partitions: dict[str, Partition] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)

    def run(self, call: Call) -> None:
        args: dict[str, Any] = call.args
        match call.method:
            case "create_table":
                assert args["tbl"].tableName not in self.tables
                self.put(args["tbl"])
            case "alter_table_with_environment_context" | "alter_table_with_cascade":
                del self.tables[args["tbl_name"]]
                self.put(args["new_tbl"])
            case "drop_table":
                assert args["deleteData"] is False
                del self.tables[args["name"]]
                self.dropped.append(args["name"])
            case "add_partitions_req":
                for one in args["request"].parts:
                    self.partitions.setdefault(f"p={one.values[0]}", _filled(one))
            case "alter_partitions":
                for one in args["new_parts"]:
                    assert f"p={one.values[0]}" in self.partitions
                    self.partitions[f"p={one.values[0]}"] = _filled(one)
            case "drop_partitions_req":
                assert args["req"].deleteData is False
                for name in args["req"].parts.names:
                    del self.partitions[name]
            case _:
                raise AssertionError(call.method)

    def put(self, made: Table) -> None:
        self.tables[made.tableName] = _filled(made)


def _filled(one: Any) -> Any:
    made = copy_of(one)
    made.parameters = dict(made.parameters) | {"transient_lastDdlTime": "7", "numFiles": "3"}
    made.createTime = 9
    made.sd.bucketCols, made.sd.sortCols, made.sd.parameters, made.sd.numBuckets = [], [], {}, -1
    made.sd.compressed = made.sd.storedAsSubDirectories = False
    made.sd.skewedInfo = SkewedInfo(skewedColNames=[], skewedColValues=[], skewedColValueLocationMaps={})
    made.privileges = PrincipalPrivilegeSet()
    return made


def decided(theirs: Theirs, ours: Table | None, **given_: Any) -> Decision:
    options = {"table_id": 5, "overwrite": False, "owner": OWNER} | given_
    decision = decide_table(ours, theirs.tables.get("t"), options.pop("owner"), **options)
    for call in decision.calls:
        theirs.run(call)
    return decision


def test_a_table_is_created_altered_and_dropped() -> None:
    theirs = Theirs()
    assert decided(theirs, None) == EQUAL
    assert decided(theirs, table(k="1")).difference == "the table is missing there"
    assert decided(theirs, table(k="1")) == EQUAL
    changed = decided(theirs, table(k="2", location="file:/u"))
    assert (
        changed.difference == "location is 'file:/t' there and 'file:/u' here; parameter 'k' is '1' there and '2' here"
    )
    assert [call.method for call in changed.calls] == ["alter_table_with_environment_context"]
    assert decided(theirs, table(k="2", location="file:/u/")) == EQUAL
    columns = decided(theirs, table(cols="ab"), cascade=True)
    assert columns.calls[0].args["cascade"] is True
    assert [call.method for call in columns.otherwise] == ["drop_table", "create_table"]
    assert decided(theirs, None).difference == "the table was dropped here"
    assert theirs.tables == {}


def test_another_table_of_the_name_and_other_partition_columns_replace_the_table() -> None:
    theirs = Theirs()
    decided(theirs, table())
    assert decided(theirs, table(), table_id=6).replaces
    assert decided(theirs, table(), table_id=6) == EQUAL
    assert decided(theirs, table(keys="p"), table_id=6).replaces
    assert theirs.dropped == ["t", "t"]


def test_statistics_and_empty_fields_are_no_difference() -> None:
    theirs = Theirs()
    decided(theirs, table())
    theirs.tables["t"].parameters |= {"numRows": "8", "COLUMN_STATS_ACCURATE": "x", "spark.sql.statistics.numRows": "1"}
    assert decided(theirs, table()) == EQUAL


def test_what_is_not_the_listeners_is_never_touched() -> None:
    theirs = Theirs()
    theirs.put(table(x="theirs"))
    for owner in (OWNER, Owner("other", "1", adopted=True)):
        assert decided(theirs, table(), owner=owner, overwrite=True).left
        assert decided(theirs, None, owner=owner, overwrite=True) == EQUAL
    assert theirs.tables["t"].parameters["x"] == "theirs"
    assert theirs.dropped == []


def test_changes_by_hand_stay_until_they_are_overwritten() -> None:
    theirs = Theirs()
    decided(theirs, table())
    theirs.tables["t"].parameters["by"] = "hand"
    left = decided(theirs, table())
    assert left.left
    assert "parameter 'by' is 'hand' there and missing here" in left.difference
    assert decided(theirs, None).left
    assert "by" in theirs.tables["t"].parameters
    assert decided(theirs, table(), overwrite=True).calls
    assert decided(theirs, table()) == EQUAL


def test_a_change_by_hand_to_what_we_have_anyway_is_none() -> None:
    theirs = Theirs()
    decided(theirs, table())
    theirs.tables["t"].sd.location = "file:/u"
    assert not decided(theirs, table(location="file:/u")).left
    assert decided(theirs, table(location="file:/v")).calls


def test_an_adopted_object_gets_the_new_mark() -> None:
    theirs = Theirs()
    decided(theirs, table(), owner=Owner("hive", "old"))
    assert decided(theirs, table()).left
    adopting = Owner("hive", "new", adopted=True)
    assert decided(theirs, table(), owner=adopting).calls
    assert decided(theirs, table(), owner=Owner("hive", "new")) == EQUAL


def test_a_rename_keeps_the_table_where_the_name_is_free() -> None:
    theirs = Theirs()
    decided(theirs, table(keys="p"))
    theirs.tables["t"].parameters[facts.VERSION_MARK] = "4"
    before = theirs.tables["t"]
    assert decide_rename(before, None, table("u"), 6, OWNER) == EQUAL
    assert decide_rename(before, before, table("u"), 5, OWNER) == EQUAL
    assert decide_rename(before, None, table("u"), 5, Owner("hive", "2")) == EQUAL
    for call in decide_rename(before, None, table("u", keys="p"), 5, OWNER).calls:
        theirs.run(call)
    assert decide_table(table("u", keys="p"), theirs.tables["u"], OWNER, table_id=5, overwrite=False) == EQUAL
    assert theirs.tables["u"].parameters[facts.VERSION_MARK] == "4"


def test_progress_is_told_once_and_is_no_change_by_hand() -> None:
    theirs = Theirs()
    decided(theirs, table(keys="p"))
    statistics = {"spark.sql.statistics.numRows": "1"}
    for call in decide_progress(theirs.tables["t"], 3, 0, statistics).calls:
        theirs.run(call)
    assert decide_progress(theirs.tables["t"], 3, 0, statistics) == EQUAL
    assert decide_progress(theirs.tables["t"], 3, 1, statistics) != EQUAL
    assert decided(theirs, table(keys="p")) == EQUAL
    assert "numFiles" in theirs.tables["t"].parameters  # what the Metastore counted for itself


def test_databases() -> None:
    ours = Database(name="d", locationUri="file:/d", parameters={"k": "1"}, ownerName="ann")
    (create,) = decide_database(ours, None, OWNER, overwrite=False).calls
    made: Database = copy_of(create.args["database"])
    assert decide_database(ours, made, OWNER, overwrite=False) == EQUAL
    ours.ownerName = "bob"
    (alter,) = decide_database(ours, made, OWNER, overwrite=False).calls
    assert decide_database(ours, alter.args["db"], OWNER, overwrite=False) == EQUAL
    (drop,) = decide_database(None, alter.args["db"], OWNER, overwrite=False).calls
    assert drop.args == {"name": "d", "deleteData": False, "cascade": False}
    made.parameters["by"] = "hand"
    assert decide_database(ours, made, OWNER, overwrite=False).left
    assert decide_database(None, made, OWNER, overwrite=False).left
    assert decide_database(ours, Database(name="d"), OWNER, overwrite=True) == EQUAL


def test_functions_are_known_by_their_digests() -> None:
    ours, other = Function(functionName="f", className="A"), Function(functionName="f", className="B")
    decision, written = decide_function(ours, None, None, overwrite=False)
    assert [call.method for call in decision.calls] == ["create_function"]
    assert decide_function(ours, ours, written, overwrite=False) == (EQUAL, written)
    altered, then = decide_function(other, ours, written, overwrite=False)
    assert [call.method for call in altered.calls] == ["alter_function"]
    assert then != written
    assert decide_function(ours, other, written, overwrite=False)[0].left
    assert decide_function(None, other, written, overwrite=False)[0].left
    dropped, forgotten = decide_function(None, ours, written, overwrite=False)
    assert [call.method for call in dropped.calls] == ["drop_function"]
    assert forgotten is None
    assert decide_function(ours, other, None, overwrite=True)[0].left
    assert decide_function(None, other, None, overwrite=True) == (EQUAL, None)


VALUES = st.sampled_from("1234")
SETS = st.dictionaries(VALUES, st.sampled_from(("file:/x", "file:/y")))


@given(st.lists(SETS, min_size=1, max_size=4), SETS, st.sets(VALUES), st.booleans())
def test_partitions_come_in_line_and_those_of_others_stay(
    states: list[dict[str, str]], foreign: dict[str, str], lost: set[str], overwrite: bool
) -> None:
    theirs = Theirs()
    for value, location in foreign.items():
        theirs.partitions[f"p={value}"] = _filled(partition(value, location, theirs="1"))
    kept = {name: copy_of(one) for name, one in theirs.partitions.items()}
    for state in states:
        for value in lost - foreign.keys():
            theirs.partitions.pop(f"p={value}", None)
        for _ in range(2):
            ours = {f"p={value}": partition(value, location) for value, location in state.items()}
            decision = decide_partitions(ours, theirs.partitions, OWNER, columns=True, overwrite=overwrite)
            for call in decision.calls("d", "t"):
                theirs.run(call)
        assert decision.difference == ""
        assert {left.name for left in decision.left} == kept.keys()
        expected = {f"p={value}": location for value, location in state.items()}
        expected |= {name: one.sd.location for name, one in kept.items()}
        assert {name: one.sd.location for name, one in theirs.partitions.items()} == expected
    assert {name: theirs.partitions[name] for name in kept} == kept


@given(SETS, VALUES)
def test_a_partition_changed_by_hand_is_told_and_stays(state: dict[str, str], value: str) -> None:
    theirs = Theirs()
    ours = {f"p={one}": partition(one, location) for one, location in state.items()}
    for call in decide_partitions(ours, {}, OWNER, columns=True, overwrite=False).calls("d", "t"):
        theirs.run(call)
    name = f"p={value}"
    if name not in theirs.partitions:
        return
    theirs.partitions[name].sd.location = "file:/hand"
    fresh = {f"p={one}": partition(one, location) for one, location in state.items()}
    for mine in (fresh, {}):
        decision = decide_partitions(mine, theirs.partitions, OWNER, columns=True, overwrite=False)
        assert [left.name for left in decision.left] == [name]
        assert name not in decision.drop
    assert decide_partitions(fresh, theirs.partitions, OWNER, columns=True, overwrite=True).alter
