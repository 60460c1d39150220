"""The pages of one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final, NamedTuple

from lakemark_core.errors import NotFound, UnsupportedOperation
from lakemark_core.types import Schema, format_type
from lakemark_proto.store.v1.store_pb2 import InstantRecord, VersionRecord
from lakemark_proto.v1 import catalog_pb2
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.snapshots.service import SnapshotReference, TableSnapshot
from lakemark_server.store.keyspace import MAIN
from lakemark_server.timeline.branches import forks
from lakemark_server.timeline.instants.alive import Alive
from lakemark_server.timeline.refusals import Refusal
from lakemark_web import texts
from lakemark_web.domains import Domains
from lakemark_web.file_health import CLASSES, PartitionFiles, goal_of, partition_files
from lakemark_web.file_lists import FileShown, files_of
from lakemark_web.pages import moments
from lakemark_web.picture import BranchShown, InstantShown, draw
from lakemark_web.summaries import Summaries

VERSIONS_SHOWN: Final = 10
SCHEMAS_SHOWN: Final = 50
PARTITIONS_SHOWN: Final = 100
FILES_SHOWN: Final = 200
INSTANTS_SHOWN: Final = 60
REFUSED_SHOWN: Final = 50
REFUSED_IN_SUMMARY: Final = 3
LOOKED_AT_IN_SUMMARY: Final = 100
"""Instants among which the summary finds those that were rolled back; the page of conflicts looks further."""

REFERENCES_SHOWN: Final = 200
METADATA_SHOWN: Final = 20
PARTITION_SORTS: Final = {
    "name": "name",
    "avoidable": "most avoidable files first",
    "files": "most files first",
    "size": "largest first",
}
EARLIER: Final = (("an hour ago", 3_600_000), ("yesterday", 86_400_000), ("a week ago", 7 * 86_400_000))
"""Moments to look at without typing a time, and how long ago they were, in ms."""

_TEXT_CHARS: Final = 300
_SHAPES: Final = {
    pb.COMPACT: "service",
    pb.CLUSTER: "service",
    pb.CLEAN_FILES: "service",
    pb.RESTORE_VERSION: "restore",
    pb.ALTER_SCHEMA: "schema",
    pb.MAKE_SAVEPOINT: "other",
}


@dataclass(frozen=True, slots=True)
class TableRequest:
    """Which table, at which moment."""

    catalog: str
    database: str
    table: str
    at: SnapshotReference = moments.LATEST


class InstantRow(NamedTuple):
    """An instant of the list. ``heartbeat``: in words, "" unless it is open; ``lost``: the writer has gone silent."""

    instant: int
    branch: str
    operation: str
    state: str
    version: int
    read_version: int
    owner: str
    opened_ms: int
    ended_ms: int
    files: int
    rows: int
    removed: int
    reason: str
    conflict: bool
    heartbeat: str
    lost: bool
    metadata: Sequence[tuple[str, str]]
    partitions: str


class VersionRow(NamedTuple):
    """A version of the list."""

    version: int
    committed_ms: int
    operation: str
    owner: str
    files: int
    rows: int
    removed: int


class Slice(NamedTuple):
    """A file group's files on a page: its base, and the deltas on top."""

    group: str
    files: list[FileShown]
    deltas: int


# -- parts that pages share -------------------------------------------------------------------------------------------


def frame(domains: Domains, asked: TableRequest) -> dict[str, Any]:
    """What each page of a lake table shows at its head. Raises NotFound, UnsupportedOperation for a warehouse table."""
    resolved = domains.snapshots.resolve(asked.catalog, asked.database, asked.table, asked.at)
    record = resolved.table.record
    return {
        "asked": asked,
        "table": resolved.table,
        "record": record,
        "version": resolved.version,
        "resolved": resolved,
        "query": moments.query_of(asked.at),
        "moment": moments.words_of(asked.at),
    }


def _loaded(domains: Domains, asked: TableRequest) -> TableSnapshot:
    snapshots = domains.snapshots
    return snapshots.again(lambda: snapshots.snapshot(asked.catalog, asked.database, asked.table, asked.at))


def columns(schema: Schema) -> list[dict[str, Any]]:
    """The columns of a schema for a list."""
    return [
        {
            "id": field.id,
            "name": field.name,
            "type": format_type(field.type),
            "nullable": field.nullable,
            "comment": field.comment,
            "partition": schema.is_partition(field.name),
        }
        for field in schema.columns
    ]


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS else text[:_TEXT_CHARS] + "…"


def _metadata(metadata: Any) -> list[tuple[str, str]]:
    return [(_cut(key), _cut(metadata[key])) for key in islice(sorted(metadata), METADATA_SHOWN)]


def _partitions(record: InstantRecord) -> str:
    named = ", ".join(name or "the only one" for name in record.partitions[:5])
    if record.all_partitions:
        return f"{named} and others" if named else "the whole table"
    more = len(record.partitions) - 5
    return _cut(named + (f" and {more:,} more" if more > 0 else ""))


def _version_row(record: VersionRecord) -> VersionRow:
    return VersionRow(
        record.version,
        record.committed_ms,
        texts.words(pb.Operation.Name(record.operation)),
        record.owner,
        record.staged.files,
        record.staged.rows,
        record.removed.files,
    )


def _state(record: InstantRecord, living: Alive | None, now_ms: int) -> tuple[str, str, bool]:
    """The state in a word, the heartbeat in words, and whether it is lost."""
    if record.state in (pb.COMPLETED, pb.ROLLED_BACK):
        return texts.words(pb.InstantState.Name(record.state)), "", False
    if living is None:
        return "ending", "", False
    last = living.deadline_ms - living.timeout_ms
    heard = f"heard {texts.ago(last, now_ms)}, lost after {texts.duration(living.timeout_ms)} of silence"
    if living.expired(now_ms):
        return "lost", f"silent: {heard}", True
    return texts.words(pb.InstantState.Name(record.state)), heard, False


def _instant_row(record: InstantRecord, living: Alive | None, now_ms: int) -> InstantRow:
    state, heartbeat, lost = _state(record, living, now_ms)
    return InstantRow(
        record.instant,
        forks.name_of(record.branch) or MAIN,
        texts.words(pb.Operation.Name(record.operation)),
        state,
        record.version,
        record.read_version,
        record.owner,
        record.opened_ms,
        record.completed_ms,
        record.staged.files,
        record.staged.rows,
        record.removed.files,
        record.rolled_back_reason,
        record.HasField("conflict"),
        heartbeat,
        lost,
        _metadata(record.metadata),
        _partitions(record),
    )


def _rows(domains: Domains, table: LakeTable, records: Sequence[InstantRecord]) -> list[InstantRow]:
    now_ms = domains.clock()
    rows = []
    for record in records:
        living = None
        if record.state in (pb.REQUESTED, pb.INFLIGHT):
            record, living = domains.timeline.instant(table.table_id, record.instant)  # noqa: PLW2901 - both of one moment
        rows.append(_instant_row(record, living, now_ms))
    return rows


# -- pages ------------------------------------------------------------------------------------------------------------


def summary(domains: Domains, summaries: Summaries, asked: TableRequest) -> dict[str, Any]:
    """The table's own page."""
    loaded = _loaded(domains, asked)
    table, version = loaded.table, loaded.snapshot.version
    given = frame(domains, asked)
    newest, _ = domains.timeline.versions(table.table_id, asked.at.branch, limit=VERSIONS_SHOWN, newest_first=True)
    open_now, more_open = domains.timeline.instants(
        table.table_id, states=frozenset({pb.REQUESTED, pb.INFLIGHT}), limit=VERSIONS_SHOWN
    )
    lately, _ = domains.timeline.instants(table.table_id, limit=LOOKED_AT_IN_SUMMARY, newest_first=True)
    lately = [one for one in lately if one.state == pb.ROLLED_BACK]
    schemas = domains.catalog.schemas(table)
    now_ms = domains.clock()
    record = loaded.snapshot.record
    return given | {
        "version": version,
        "snapshot": loaded.snapshot,
        "made_by": record and _version_row(record),
        "metadata": _metadata(record.metadata) if record else [],
        "totals": summaries.of(loaded).totals,
        "goal": goal_of(table.record.properties),
        "classes": CLASSES,
        "columns": columns(loaded.schema),
        "schemas": [
            (one.schema.schema_id, one.version, one.committed_ms, one.changes, columns(one.schema))
            for one in reversed(schemas[-SCHEMAS_SHOWN:])
        ],
        "properties": sorted((key, _cut(value)) for key, value in table.record.properties.items()),
        "policy": table.policy,
        "versions": [_version_row(one) for one in newest],
        "latest": newest[0].version if newest else 0,
        "earlier": [(name, now_ms - ago_ms) for name, ago_ms in EARLIER if now_ms - ago_ms > table.record.created_ms]
        if not asked.at.branch
        else [],
        "open": _rows(domains, table, open_now),
        "more_open": bool(more_open),
        "refused": _rows(domains, table, lately[:REFUSED_IN_SUMMARY]),
        "early": domains.timeline.refusals.newest(table.table_id)[:REFUSED_IN_SUMMARY],
    }


def files(domains: Domains, summaries: Summaries, asked: TableRequest, sort: str, offset: int) -> dict[str, Any]:
    """Partitions with the sizes of their files."""
    loaded = _loaded(domains, asked)
    counted = summaries.of(loaded)
    sort = sort if sort in PARTITION_SORTS else "name"
    shown: Sequence[PartitionFiles] = counted.partitions(sort, offset, PARTITIONS_SHOWN)
    return frame(domains, asked) | {
        "version": loaded.snapshot.version,
        "totals": counted.totals,
        "goal": goal_of(loaded.table.record.properties),
        "listed": counted.listed,
        "left_out": counted.left_out,
        "partitions": shown,
        "classes": CLASSES,
        "sort": sort,
        "sorts": PARTITION_SORTS,
        "following": offset + PARTITIONS_SHOWN if offset + PARTITIONS_SHOWN < counted.listed else 0,
    }


def partition(domains: Domains, asked: TableRequest, name: str, offset: int) -> dict[str, Any]:
    """The files and slices of one partition. Raises NotFound if it has no files."""
    loaded = _loaded(domains, asked)
    figures = partition_files(loaded.snapshot, goal_of(loaded.table.record.properties), name)
    if figures is None:
        raise NotFound(
            f"{loaded.table.name} has no files in partition {_cut(name)!r} at version {loaded.snapshot.version}"
        )
    shown = files_of(loaded.snapshot, name, offset, FILES_SHOWN)
    ordered = sorted(shown, key=lambda one: (one.group, one.is_delta, one.version))
    slices = [Slice(group, members := list(one), sum(member.is_delta for member in members))
              for group, one in groupby(ordered, key=lambda member: member.group)]  # fmt: skip
    return frame(domains, asked) | {
        "version": loaded.snapshot.version,
        "partition": figures,
        "classes": CLASSES,
        "slices": slices,
        "offset": offset,
        "shown": len(shown),
        "following": offset + FILES_SHOWN if offset + FILES_SHOWN < figures.files else 0,
    }


def timeline(domains: Domains, asked: TableRequest, before: int) -> dict[str, Any]:
    """Instants, as a picture and as a list; the latest ones, or those before an instant."""
    given = frame(domains, asked)
    table: LakeTable = given["table"]
    records, _ = domains.timeline.instants(table.table_id, before=before, limit=INSTANTS_SHOWN, newest_first=True)
    rows = _rows(domains, table, records)
    references = domains.timeline.references.find(table, catalog_pb2.BRANCH)
    branches = {one.name: BranchShown(one.name, one.name, one.parent, one.fork_version) for one in references}
    shown = [_drawn(row, record) for row, record in zip(rows, records, strict=True)]
    return given | {
        "instants": rows,
        "before": before,
        "older": records[-1].instant if len(records) == INSTANTS_SHOWN else 0,
        "picture": draw(shown, branches, MAIN) if shown else None,
    }


def _drawn(row: InstantRow, record: InstantRecord) -> InstantShown:
    state = "lost" if row.lost else "open" if row.heartbeat else row.state
    made = f", version {row.version}" if row.version else ""
    lines = [
        f"{texts.time(row.instant)} UTC: {row.operation}{made}, {row.state}",
        f"by {row.owner}" if row.owner else "",
        f"{texts.counted(row.files, 'file')}, {texts.counted(row.rows, 'row')}" if row.files else "",
        row.heartbeat,
        row.reason,
        *(f"{key} = {value}" for key, value in row.metadata),
    ]
    shape = _SHAPES.get(record.operation, "commit")
    return InstantShown(row.instant, row.branch, state, shape, row.version, "\n".join(filter(None, lines)))


def references(domains: Domains, asked: TableRequest) -> dict[str, Any]:
    """Branches, tags and savepoints."""
    given = frame(domains, asked)
    table: LakeTable = given["table"]
    known = domains.timeline.references.find(table)
    return given | {
        "branches": [one for one in known if one.kind == catalog_pb2.BRANCH][:REFERENCES_SHOWN],
        "tags": [one for one in known if one.kind == catalog_pb2.TAG][:REFERENCES_SHOWN],
        "savepoints": domains.timeline.savepoints.find(table)[:REFERENCES_SHOWN],
        "more": max(0, len(known) - REFERENCES_SHOWN),
    }


def conflicts(domains: Domains, asked: TableRequest) -> dict[str, Any]:
    """Commits that were refused and instants that were given up, with the reasons."""
    given = frame(domains, asked)
    early: list[Refusal] = domains.timeline.refusals.newest(given["table"].table_id)[:REFUSED_SHOWN]
    return given | {
        "refused": _refused(domains, given["table"]),
        "early": [(one, texts.words(pb.Operation.Name(one.operation))) for one in early],
        "policy": given["table"].policy,
        "process": domains.process,
    }


def _refused(domains: Domains, table: LakeTable) -> list[InstantRow]:
    """The last ones, among the last instants."""
    records, _ = domains.timeline.instants(
        table.table_id, states=frozenset({pb.ROLLED_BACK}), limit=REFUSED_SHOWN, newest_first=True
    )
    return _rows(domains, table, records)


def warehouse(domains: Domains, asked: TableRequest) -> dict[str, Any]:
    """The page of a warehouse (Hive) table, which has no versions. Raises UnsupportedOperation for a lake table."""
    if asked.at != moments.LATEST:
        raise UnsupportedOperation("a warehouse (Hive) table has no versions, branches or tags")
    table = domains.warehouse.tables.get(asked.catalog, asked.database, asked.table)
    return {
        "asked": asked,
        "table": table,
        "hive_type": table.entry.hive_type,
        "location": table.record.location,
        "comment": table.record.comment,
        "columns": list(zip(table.record.partition_columns, table.record.partition_types, strict=False)),
    }
