"""The type of each event's notification, as docs/hms.md has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemark_hms.notifications.kinds import event_type
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.events_pb2 import Event

DOCUMENT = Path(__file__).parents[4] / "docs" / "hms.md"

ONE = [pb.PartitionChange(values=["1"])]
TWO = [*ONE, pb.PartitionChange(values=["2"])]

TYPES: dict[str, list[tuple[Event, str]]] = {
    "DATABASE_CREATED": [(Event(), "CREATE_DATABASE")],
    "DATABASE_ALTERED": [(Event(), "ALTER_DATABASE")],
    "DATABASE_DROPPED": [(Event(), "DROP_DATABASE")],
    "TABLE_CREATED": [(Event(), "CREATE_TABLE")],
    "TABLE_ALTERED": [(Event(), "ALTER_TABLE")],
    "TABLE_RENAMED": [(Event(), "ALTER_TABLE")],
    "TABLE_DROPPED": [(Event(), "DROP_TABLE")],
    "TABLE_UNDROPPED": [(Event(), "CREATE_TABLE")],
    "TABLE_PURGED": [(Event(), "LAKEMARK_TABLE_PURGED")],
    "SCHEMA_CHANGED": [(Event(), "ALTER_TABLE")],
    "TABLE_TRUNCATED": [(Event(), "ALTER_TABLE")],
    "PARTITIONS_ADDED": [
        (Event(partitions_change=pb.PartitionsChange(count=2, partitions=TWO)), "ADD_PARTITION"),
        (Event(partitions_change=pb.PartitionsChange(count=2)), "INSERT"),
    ],
    "PARTITIONS_ALTERED": [
        (Event(partitions_change=pb.PartitionsChange(count=1, partitions=ONE)), "ALTER_PARTITION"),
        (Event(partitions_change=pb.PartitionsChange(count=2, partitions=TWO)), "INSERT"),
        (Event(partitions_change=pb.PartitionsChange(count=2)), "INSERT"),
    ],
    "PARTITIONS_DROPPED": [
        (Event(partitions_change=pb.PartitionsChange(count=2, partitions=TWO)), "DROP_PARTITION"),
        (Event(partitions_change=pb.PartitionsChange(count=2)), "INSERT"),
    ],
    "PARTITIONS_TRUNCATED": [
        (Event(partitions_change=pb.PartitionsChange(count=1, partitions=ONE)), "ALTER_PARTITION"),
        (Event(partitions_change=pb.PartitionsChange(count=2, partitions=TWO)), "INSERT"),
    ],
    "STATISTICS_CHANGED": [
        (Event(statistics_change=pb.StatisticsChange()), "UPDATE_TBL_COL_STAT_EVENT"),
        (Event(statistics_change=pb.StatisticsChange(partition="p=1")), "UPDATE_PART_COL_STAT_EVENT"),
        (Event(statistics_change=pb.StatisticsChange(deleted=True)), "DELETE_TBL_COL_STAT_EVENT"),
        (Event(statistics_change=pb.StatisticsChange(partition="p=1", deleted=True)), "DELETE_PART_COL_STAT_EVENT"),
    ],
    "CONSTRAINTS_ADDED": [
        (Event(constraints_change=pb.ConstraintsChange(constraints=[pb.Constraint(type=kind)])), told)
        for kind, told in {
            "PRIMARY_KEY": "ADD_PRIMARYKEY",
            "FOREIGN_KEY": "ADD_FOREIGNKEY",
            "UNIQUE": "ADD_UNIQUECONSTRAINT",
            "NOT_NULL": "ADD_NOTNULLCONSTRAINT",
            "DEFAULT": "ADD_DEFAULTCONSTRAINT",
            "CHECK": "ADD_CHECKCONSTRAINT",
            "LATER": "LAKEMARK_CONSTRAINTS_ADDED",
        }.items()
    ],
    "CONSTRAINT_DROPPED": [
        (Event(), "DROP_CONSTRAINT"),
        (Event(constraints_change=pb.ConstraintsChange(with_parent=True)), "LAKEMARK_CONSTRAINT_DROPPED"),
    ],
    "FUNCTION_CREATED": [(Event(), "CREATE_FUNCTION")],
    "FUNCTION_ALTERED": [(Event(), "LAKEMARK_FUNCTION_ALTERED")],
    "FUNCTION_DROPPED": [(Event(), "DROP_FUNCTION")],
    "COMMITTED": [
        (Event(commit=pb.CommitDetail(branch="main")), "INSERT"),
        (Event(commit=pb.CommitDetail(branch="try")), "LAKEMARK_COMMITTED"),
    ],
    "INSTANT_ROLLED_BACK": [(Event(), "LAKEMARK_INSTANT_ROLLED_BACK")],
    "CLEANED": [(Event(), "LAKEMARK_CLEANED")],
    "SAVEPOINT_CREATED": [(Event(), "LAKEMARK_SAVEPOINT_CREATED")],
    "SAVEPOINT_DROPPED": [(Event(), "LAKEMARK_SAVEPOINT_DROPPED")],
    "BRANCH_CREATED": [(Event(), "LAKEMARK_BRANCH_CREATED")],
    "BRANCH_DROPPED": [(Event(), "LAKEMARK_BRANCH_DROPPED")],
    "TAG_CREATED": [(Event(), "LAKEMARK_TAG_CREATED")],
    "TAG_DROPPED": [(Event(), "LAKEMARK_TAG_DROPPED")],
    "QUOTA_CHANGED": [(Event(), "LAKEMARK_QUOTA_CHANGED")],
    "STORE_RESTORED": [(Event(), "LAKEMARK_STORE_RESTORED")],
    "SINK_CREATED": [(Event(), "LAKEMARK_SINK_CREATED")],
    "SINK_ALTERED": [(Event(), "LAKEMARK_SINK_ALTERED")],
    "SINK_DROPPED": [(Event(), "LAKEMARK_SINK_DROPPED")],
    "OPTIMIZATION_STOPPED": [(Event(), "LAKEMARK_OPTIMIZATION_STOPPED")],
    "CLIENT_NOTED": [
        (Event(note=pb.ClientNote(what="INSERT")), "INSERT"),
        (Event(note=pb.ClientNote(what="WRITE")), "ACID_WRITE_EVENT"),
        (Event(note=pb.ClientNote(what="REFRESH")), "RELOAD"),
        (Event(note=pb.ClientNote(what="OF A LATER RELEASE")), "LAKEMARK_CLIENT_NOTED"),
    ],
}


def test_every_kind_is_here() -> None:
    assert [name for name in pb.EventKind.keys() if name != "EVENT_KIND_UNSPECIFIED"] == list(TYPES)  # noqa: SIM118


@pytest.mark.parametrize("kind", TYPES)
def test_the_type_of_each_kind(kind: str) -> None:
    for detail, expected in TYPES[kind]:
        event = Event(kind=pb.EventKind.Value(kind))
        event.MergeFrom(detail)
        assert event_type(event) == expected


def test_a_kind_of_a_later_release_has_a_type_of_its_own() -> None:
    assert event_type(Event(kind=99)) == "LAKEMARK_EVENT_99"  # type: ignore[arg-type]


def test_the_page_lists_every_kind_with_its_types() -> None:
    page = DOCUMENT.read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for kind, cases in TYPES.items():
        row = next((line for line in rows if f"`{kind}`" in line.split("|")[1]), None)
        assert row is not None, f"docs/hms.md has no row for {kind}"
        assert [name for _, name in cases if f"`{name}`" not in row] == [], row
