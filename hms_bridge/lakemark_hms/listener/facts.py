"""What of a Metastore's object counts when two are compared, and the marks by which a listener knows its own.

Metastores fill in, reorder and leave out fields that mean nothing, and engines write statistics into parameters. Facts
are what is left without that: the same definition has the same facts on both sides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from lakemark_thrift.ttypes import Database, FieldSchema, Function, Partition, StorageDescriptor, Table

Facts: TypeAlias = dict[str, Any]

OWNER_MARK: Final = "lakemark_listener"
"""Which listener made the object: its name and id."""
WRITTEN_MARK: Final = "lakemark_listener.written"
"""The digest of the facts as the listener wrote them. Other facts than these were made by somebody else."""
TABLE_MARK: Final = "lakemark_listener.table"
"""The table id, by which a renamed table is known."""
VERSION_MARK: Final = "lakemark_listener.version"
"""The version of main whose file slices are the partitions of a lake table there."""
EPOCH_MARK: Final = "lakemark_listener.epoch"
"""The epoch of our store to which the version belongs."""

MARKS: Final = (OWNER_MARK, WRITTEN_MARK, TABLE_MARK, VERSION_MARK, EPOCH_MARK)
_CHARS_TOLD: Final = 120

# Written by Metastores and engines beside the definition.
_STATISTICS: Final = frozenset(
    {"transient_lastDdlTime", "numFiles", "totalSize", "numRows", "rawDataSize", "numFilesErasureCoded",
     "numPartitions", "COLUMN_STATS_ACCURATE", "STATS_GENERATED", "STATS_GENERATED_VIA_STATS_TASK",
     "last_modified_by", "last_modified_time", "bucketing_version", "DO_NOT_UPDATE_STATS", "EXTERNAL"}
)  # fmt: skip
_STATISTICS_PREFIXES: Final = ("spark.sql.statistics.", "impala.")


def is_statistic(parameter: str) -> bool:
    """Whether engines write the parameter by themselves, so that it says nothing of a change by hand."""
    return parameter in _STATISTICS or parameter.startswith(_STATISTICS_PREFIXES)


def of_database(database: Database) -> Facts:
    """Without location and description: Hive 2.3 keeps those with which a database was created."""
    return {"owner": database.ownerName or "", "parameters": _parameters(database.parameters)}


def of_table(table: Table) -> Facts:
    return {
        "type": table.tableType or "",
        "owner": table.owner or "",
        **of_storage(table.sd, columns=True),
        "partition columns": _columns(table.partitionKeys),
        "view": [table.viewOriginalText or "", table.viewExpandedText or ""],
        "parameters": _parameters(table.parameters),
    }


def of_partition(partition: Partition, *, columns: bool) -> Facts:
    """``columns``: whether the partition's own columns count. Those of a lake table follow the table."""
    facts = of_storage(partition.sd, columns=columns)
    return {"values": list(partition.values or ()), **facts, "parameters": _parameters(partition.parameters)}


def of_function(function: Function) -> Facts:
    return {
        "class": function.className or "",
        "owner": function.ownerName or "",
        "resources": [[uri.resourceType, uri.uri] for uri in function.resourceUris or ()],
    }


def of_storage(sd: StorageDescriptor | None, *, columns: bool) -> Facts:
    if sd is None:
        return {}
    serde = sd.serdeInfo
    facts: Facts = {"columns": _columns(sd.cols)} if columns else {}
    return facts | {
        "location": (sd.location or "").rstrip("/"),
        "input format": sd.inputFormat or "",
        "output format": sd.outputFormat or "",
        "compressed": bool(sd.compressed),
        "serde": (serde.serializationLib if serde else "") or "",
        "serde parameters": dict((serde.parameters if serde else None) or {}),
        "buckets": [max(sd.numBuckets or 0, 0), [name.lower() for name in sd.bucketCols or ()]],
        "sorted by": [[one.col, one.order] for one in sd.sortCols or ()],
        "storage parameters": dict(sd.parameters or {}),
    }


def digest(facts: Facts) -> str:
    """The same for the same facts, and 16 characters long."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def differences(theirs: Facts, ours: Facts) -> str:
    """In words what differs: "location is 'a' there and 'b' here"; "" for the same facts."""
    told: list[str] = []
    for name in ours.keys() | theirs.keys():
        there, here = theirs.get(name), ours.get(name)
        if there == here:
            continue
        if isinstance(there, Mapping) and isinstance(here, Mapping):
            told += [
                f"{name.removesuffix('s')} {key!r} is {_told(there.get(key))} there and {_told(here.get(key))} here"
                for key in there.keys() | here.keys()
                if there.get(key) != here.get(key)
            ]
        else:
            told.append(f"{name} is {_told(there)} there and {_told(here)} here")
    return "; ".join(sorted(told))


def _told(value: Any) -> str:
    if value is None:
        return "missing"
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _CHARS_TOLD else text[:_CHARS_TOLD] + "…"


def _parameters(parameters: Mapping[str, str] | None) -> dict[str, str]:
    return {name: value for name, value in (parameters or {}).items() if name not in MARKS and not is_statistic(name)}


def _columns(columns: Sequence[FieldSchema] | None) -> list[list[str]]:
    return [[(one.name or "").lower(), one.type or "", one.comment or ""] for one in columns or ()]
