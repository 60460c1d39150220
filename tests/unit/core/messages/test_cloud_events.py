"""Events as CloudEvents: the attributes that the specification demands, and all of the event in ``data``."""

from __future__ import annotations

import json
import re

import pytest

from lakemark_core.messages.cloud_events import cloud_event, cloud_event_json
from lakemark_core.messages.types import schema_to_proto
from lakemark_core.types import BIGINT, Field, ListOf, Schema
from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.admin_pb2 import Quota
from lakemark_proto.v1.catalog_pb2 import Table
from lakemark_proto.v1.timeline_pb2 import OVERWRITE_PARTITIONS
from lakemark_proto.v1.types_pb2 import TableName

SCHEMA = Schema.build([Field(1, "id", BIGINT), Field(2, "tags", ListOf(BIGINT, 3))], schema_id=4)
COMMIT = pb.Event(
    offset=42,
    epoch=1,
    time_ms=1_800_000_000_007,
    kind=pb.COMMITTED,
    catalog="hive",
    database="sales",
    table="orders",
    table_id=7,
    commit=pb.CommitDetail(
        branch="main", version=3, operation=OVERWRITE_PARTITIONS, partitions=["m=1", "m=2"], metadata={"batch": "é\n"}
    ),
)


def test_a_commit() -> None:
    event = cloud_event(COMMIT)
    data = event.pop("data")
    assert event == {
        "specversion": "1.0",
        "id": "1-42",
        "source": "/lakemark/hive",
        "type": "io.lakemark.committed",
        "subject": "sales.orders",
        "time": "2027-01-15T08:00:00.007Z",
        "datacontenttype": "application/json",
    }
    assert (data["offset"], data["epoch"], data["kind"], data["table_id"]) == (42, 1, "committed", 7)
    commit = data["commit"]
    assert (commit["version"], commit["operation"]) == (3, "overwrite_partitions")
    assert (commit["partitions"], commit["metadata"]) == (["m=1", "m=2"], {"batch": "é\n"})


def test_before_and_after_of_a_change_with_schemas_as_text_and_bytes_as_base64() -> None:
    table = Table(name=TableName(database="sales", table="orders"), schema=schema_to_proto(SCHEMA))
    change = pb.TableChange(after=table, hive_after=b"\x00\xff")
    data = cloud_event(pb.Event(kind=pb.TABLE_CREATED, catalog="hive", table_change=change))["data"]["table_change"]
    assert "before" not in data
    assert "hive_before" not in data
    assert data["hive_after"] == "AP8="
    assert data["after"]["schema"]["schema_id"] == 4
    columns = data["after"]["schema"]["columns"]
    assert [(column["name"], column["type"]) for column in columns] == [("id", "bigint"), ("tags", "array<bigint>")]


def test_an_event_of_a_catalog_has_no_subject_and_only_limits_that_are_set() -> None:
    event = pb.Event(kind=pb.QUOTA_CHANGED, catalog="one", quota=pb.QuotaDetail(own=Quota(tables=0)))
    assert "subject" not in cloud_event(event)
    assert cloud_event(event)["data"]["quota"] == {"own": {"tables": 0}}
    assert cloud_event(event, "urn:store:7")["source"] == "urn:store:7"


def test_one_line_of_json() -> None:
    line = cloud_event_json(COMMIT)
    assert "\n" not in line
    assert json.loads(line) == cloud_event(COMMIT)


@pytest.mark.parametrize("kind", [kind for kind in pb.EventKind.values() if kind])
def test_every_kind_has_a_type(kind: pb.EventKind.ValueType) -> None:
    event = cloud_event(pb.Event(kind=kind, catalog="hive"))
    assert re.fullmatch(r"io\.lakemark\.[a-z]+(_[a-z]+)+|io\.lakemark\.(committed|cleaned)", event["type"])
    assert all(isinstance(event[name], str) and event[name] for name in event if name != "data")


def test_a_kind_of_a_later_release_is_told_by_its_number() -> None:
    event = pb.Event.FromString(pb.Event(kind=999).SerializeToString())  # type: ignore[arg-type]
    assert cloud_event(event)["type"] == "io.lakemark.kind_999"
