"""Names of snapshots as Spark passes them on (in lower case)."""

from __future__ import annotations

import datetime as dt

import pytest

from lakemark_core.errors import InvalidName
from lakemark_hms.lake.names import SnapshotName, hidden_name, parse
from lakemark_server.snapshots.service import SnapshotReference


def _ms(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp() * 1_000)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t", SnapshotName("t", SnapshotReference())),
        ("t@v12", SnapshotName("t", SnapshotReference(version=12))),
        ("T@V12", SnapshotName("t", SnapshotReference(version=12))),
        ("t@v0", SnapshotName("t", SnapshotReference(version=0))),
        ("t@v12@files", SnapshotName("t", SnapshotReference(version=12), files=True)),
        ("t@2026-11-20t10:00:00", SnapshotName("t", SnapshotReference(timestamp_ms=_ms("2026-11-20T10:00:00+00:00")))),
        ("t@2026-11-20 10:00", SnapshotName("t", SnapshotReference(timestamp_ms=_ms("2026-11-20T10:00:00+00:00")))),
        ("t@2026-11-20", SnapshotName("t", SnapshotReference(timestamp_ms=_ms("2026-11-20T00:00:00+00:00")))),
        (
            "t@2026-11-20t10:00:00.123z",
            SnapshotName("t", SnapshotReference(timestamp_ms=_ms("2026-11-20T10:00:00.123+00:00"))),
        ),
        (
            "t@2026-11-20t10:00:00+02:00",
            SnapshotName("t", SnapshotReference(timestamp_ms=_ms("2026-11-20T08:00:00+00:00"))),
        ),
    ],
)
def test_names_of_snapshots(name: str, expected: SnapshotName) -> None:
    assert parse(name) == expected


def test_the_hidden_name_leads_back_to_the_version() -> None:
    assert parse(hidden_name("t", 7)) == SnapshotName("t", SnapshotReference(version=7), files=True)


def test_files_of_one_group_of_schemas() -> None:
    assert parse("t@v7@files@s3") == SnapshotName("t", SnapshotReference(version=7), files=True, group=3)
    assert parse(hidden_name("t", 12, 10, 3)) == SnapshotName(
        "t", SnapshotReference(version=12), files=True, since=10, group=3
    )


@pytest.mark.parametrize(
    "name",
    [
        "t@v1@files@x",
        "t@v1@files@s",
        "t@v1@s3",
        "t@v1@files@s3@s4",
        "t@",
        "t@-dev",
        "t@a b",
        "t@dev@files",
        "t@dev@x",
        "t@dev@v1@v2",
        "t@dev#x@v1",
        "t@2026-13-40t00:00:00",
        "t@v1@x",
        "t@v1@files@v2",
        "t@files",
        "t@1",
    ],
)
def test_what_names_no_snapshot_is_refused_with_the_forms(name: str) -> None:
    with pytest.raises(InvalidName, match=r"t@v12|not a time"):
        parse(name)


def test_increments() -> None:
    assert parse("t@v10..v12") == SnapshotName("t", SnapshotReference(version=12), since=10)
    assert parse(hidden_name("t", 12, 10)) == SnapshotName("t", SnapshotReference(version=12), files=True, since=10)
    with pytest.raises(InvalidName, match="is not before"):
        parse("t@v12..v10")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t@dev", SnapshotName("t", SnapshotReference(), reference="dev")),
        ("T@Dev@V7", SnapshotName("t", SnapshotReference(version=7), reference="dev")),
        ("t@a_1.b-2@v1..v2", SnapshotName("t", SnapshotReference(version=2), since=1, reference="a_1.b-2")),
        ("t@dev@2026-11-20", SnapshotName("t", SnapshotReference(timestamp_ms=1_795_132_800_000), reference="dev")),
        ("t@dev#17@v7@files", SnapshotName("t", SnapshotReference(version=7), files=True, reference="dev#17")),
        ("t@v", SnapshotName("t", SnapshotReference(), reference="v")),
    ],
)
def test_branches_and_tags(name: str, expected: SnapshotName) -> None:
    assert parse(name) == expected


def test_hidden_names_of_branches_lead_back() -> None:
    hidden = hidden_name("t", 12, 10, 3, "dev#17")
    assert parse(hidden) == SnapshotName(
        "t", SnapshotReference(version=12), True, since=10, group=3, reference="dev#17"
    )


def test_what_is_read_optimized_and_what_is_merged_have_names_of_their_own() -> None:
    assert parse("t@ro") == SnapshotName("t", SnapshotReference(), optimized=True)
    assert parse("t@dev@v3@RO") == SnapshotName("t", SnapshotReference(version=3), reference="dev", optimized=True)
    for kinds in ("bases", "deltas"):
        assert parse(hidden_name("t", 7, kinds=kinds)) == SnapshotName(
            "t", SnapshotReference(version=7), files=True, kinds=kinds
        )
        hidden = parse(hidden_name("t", 7, None, 3, "dev#17", kinds))
        assert (hidden.kinds, hidden.group, hidden.reference) == (kinds, 3, "dev#17")
    assert parse(hidden_name("t", 7, optimized=True)) == SnapshotName(
        "t", SnapshotReference(version=7), files=True, optimized=True
    )
    with pytest.raises(InvalidName):
        parse("t@deltas")
