"""What an event says, in one line. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.timeline_pb2 import Operation
from lakemark_server.context.clock import time_text
from lakemark_web import texts

_CONSTRAINTS_MAX: Final = 5
"""In a line."""


class EventLine(NamedTuple):
    """An event for a list. ``database`` and ``table`` are "" if it concerns none."""

    offset: int
    time_ms: int
    kind: str
    database: str
    table: str
    by: str
    text: str
    bad: bool


def line_of(event: pb.Event) -> EventLine:
    """The event in words. ``by``: who asked for it, else who owns the instant."""
    by = event.by or (event.commit.owner if event.WhichOneof("detail") == "commit" else "")
    bad = event.kind in (pb.INSTANT_ROLLED_BACK, pb.OPTIMIZATION_STOPPED)
    kind = texts.words(pb.EventKind.Name(event.kind)) if event.kind in pb.EventKind.values() else str(event.kind)
    return EventLine(event.offset, event.time_ms, kind, event.database, event.table, by, _text(event), bad)


def _text(event: pb.Event) -> str:
    match event.WhichOneof("detail"):
        case "database_change":
            return ""
        case "commit":
            return _commit(event.commit)
        case "rollback":
            rollback = event.rollback
            return f"{_operation(rollback.operation)} on {_branch(rollback.branch)}: {rollback.reason}"
        case "clean":
            clean = event.clean
            return f"{texts.counted(clean.deleted_files, 'file')} deleted ({texts.size(clean.deleted_bytes)})"
        case "savepoint":
            return f"of version {event.savepoint.version} on {_branch(event.savepoint.branch)}"
        case "reference":
            reference = event.reference
            return f"{reference.name} at version {reference.version}"
        case "table_change":
            return _renamed(event.table_change)
        case "partitions_change":
            return texts.counted(event.partitions_change.count, "partition")
        case "statistics_change":
            return f"of {', '.join(event.statistics_change.columns) or 'all columns'}"
        case "constraints_change":
            return _constraints(event.constraints_change)
        case "function_change":
            return event.function_change.name_after or event.function_change.name_before
        case "quota":
            return ", ".join(f"{texts.words(field.name)} {value:,}" for field, value in event.quota.own.ListFields())
        case "sink":
            return f"{event.sink.name}: {event.sink.receiver}"
        case "note":
            return event.note.what
        case "optimization":
            detail = event.optimization
            where = f"partition {detail.partition}" if detail.partition else "the table"
            return f"{where} after {texts.counted(detail.failures, 'failed run')}: {detail.last_error}"
    return f"at {time_text(event.time_ms)}" if event.kind == pb.STORE_RESTORED else ""


def _commit(commit: pb.CommitDetail) -> str:
    parts = [f"version {commit.version} on {_branch(commit.branch)}: {_operation(commit.operation)}"]
    if commit.added_files:
        parts.append(
            f"{texts.counted(commit.added_files, 'file')} with {texts.counted(commit.added_rows, 'row')} added"
        )
    if commit.removed_files:
        parts.append(f"{texts.counted(commit.removed_files, 'file')} removed")
    if commit.restored_version:
        parts.append(f"the files of version {commit.restored_version}")
    if commit.merged_branch:
        parts.append(f"branch {commit.merged_branch} merged")
    return ", ".join(parts)


def _renamed(change: pb.TableChange) -> str:
    before, after = change.before.name, change.after.name
    if change.HasField("before") and change.HasField("after") and before != after:
        return f"from {before.database}.{before.table} to {after.database}.{after.table}"
    return "its files are kept" if change.files_kept else ""


def _constraints(change: pb.ConstraintsChange) -> str:
    told = list(map(_constraint, change.constraints[:_CONSTRAINTS_MAX]))
    more = len(change.constraints) - len(told)
    return "; ".join([*told, f"{more:,} more"] if more else told)


def _constraint(constraint: pb.Constraint) -> str:
    columns = f" ({', '.join(constraint.columns)})" if constraint.columns else ""
    return f"{texts.words(constraint.type)} {constraint.name}{columns}"


def _branch(key: str) -> str:
    return key.partition("#")[0] or "main"


def _operation(number: int) -> str:
    return texts.words(Operation.Name(Operation.ValueType(number))) if number in Operation.values() else str(number)
