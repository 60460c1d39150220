"""File slices as Thrift partitions, joined from pieces that are encoded once."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark_core.types import format_type, parse_partition_name
from lakemark_hms.filters import PartitionFilter
from lakemark_hms.lake.scans import Scan
from lakemark_hms.lake.tables import hive_columns, parquet_storage, slice_key
from lakemark_hms.partition_view import PartitionView, Values, typed_columns
from lakemark_hms.wire.splice import encode_struct, string_list_value, string_value
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.arrow import take
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.file_index.parts.locate import written_by
from lakemark_server.file_index.parts.part import Part
from lakemark_thrift import ttypes

_MARK: Final = "\x00location\x00"
_INSTANT_DIGITS: Final = 19  # fewer fit into 64 bits
_VALUES_HEAD: Final = b"\x0f\x00\x01"  # field 1, a list


def slices_view(
    table: LakeTable,
    name: str,
    location: str,
    scan: Scan,
    snapshot: Snapshot,
    selection: PartitionFilter,
    with_columns: bool = False,
) -> PartitionView:
    """The live file slices of a snapshot that the filter selects, as partitions of the hidden table ``name``.

    They are in the order of their versions. The filter is evaluated once for each partition of the lake table, or for
    each slice if it is about the key that tells slices apart. ``location`` is the table's, as engines
    read it. ``with_columns``: whether each partition has the columns of the table, which some clients do not take from
    there; the answer is several times as large.
    """
    schema = snapshot.schema
    key = slice_key(schema, scan)
    by_slice = selection.mentions(key) or not schema.partition_columns
    columns = [field.name.lower() for field in schema.partition_fields]
    selection.require_columns([*columns, key])
    before, after = _template(table, name, hive_columns(scan.data_columns) if with_columns else None)
    values: list[Values] = []
    structs: list[bytes] = []
    for part in snapshot.parts:
        codes, own = part.partition_codes[0], _partition_values(part)
        live = part.live_mask()
        if not by_slice and not selection.selects_all:
            live = live & selection.mask(partial(typed_columns, schema.partition_fields, own), len(own))[codes]
        for code, path in zip(codes[live].tolist(), _paths(part, live), strict=True):
            row = (*own[code], _slice_value(path))
            values.append(row)
            directory = string_value(f"{location}/{path.rpartition('/')[0]}")
            structs.append(b"".join((_VALUES_HEAD, string_list_value(row), before, directory)))
    types = [format_type(field.type) for field in schema.partition_fields]
    view = PartitionView([*columns, key], [*types, "string"], values, structs, after)
    return view.only(view.matching(selection)) if by_slice and not selection.selects_all else view


def slices_of(part: Part) -> Iterator[tuple[Values, str]]:
    """The live file slices of a part: the values of each as a partition, and its directory below the table's."""
    live = part.live_mask()
    codes, own = part.partition_codes[0], _partition_values(part)
    for code, path in zip(codes[live].tolist(), _paths(part, live), strict=True):
        yield (*own[code], _slice_value(path)), path.rpartition("/")[0]


def with_values(snapshot: Snapshot, wanted: AbstractSet[Values]) -> Snapshot:
    """The snapshot with only the live file slices that have these values as partitions.

    Only the paths of files that their instants wrote are looked at.
    """
    instants = {instant for values in wanted if values and (instant := instant_of(values[-1])) is not None}
    ordered = np.array(sorted(instants), np.int64)
    parts = []
    for part in snapshot.parts:
        places = written_by(part, ordered)
        if not len(places):
            continue
        codes, own = part.partition_codes[0][places], _partition_values(part)
        paths = cast("list[str]", take(part.column("path"), places).to_pylist())
        chosen = [(*own[code], _slice_value(path)) in wanted for code, path in zip(codes.tolist(), paths, strict=True)]
        kept = part.only(places[np.array(chosen, np.bool_)])
        if kept is not None:
            parts.append(kept)
    return replace(snapshot, parts=tuple(parts))


def _partition_values(part: Part) -> list[Values]:
    """The values of the lake table's partitions that a part has files of, by their codes."""
    return [tuple(text for _, text in parse_partition_name(name)) if name else () for name in part.partition_codes[1]]


def _paths(part: Part, live: npt.NDArray[np.bool_]) -> list[str]:
    return cast("list[str]", part.column("path").filter(pa.array(live)).to_pylist())


def _slice_value(path: str) -> str:
    """Unique in a partition: the instant that wrote the slice and the slice's directory."""
    parts = path.split("/")
    return f"{parts[0]}.{parts[-2]}"


def instant_of(value: str) -> int | None:
    """The instant that wrote a slice, by its value as a partition; None if it is the value of none."""
    instant = value.partition(".")[0]
    return int(instant) if instant.isascii() and instant.isdecimal() and len(instant) < _INSTANT_DIGITS else None


def _template(table: LakeTable, name: str, columns: list[ttypes.FieldSchema] | None) -> tuple[bytes, bytes]:
    """The bytes of a partition after its values up to its location, and after its location."""
    record = table.record
    whole = encode_struct(
        ttypes.Partition(
            dbName=record.database,
            tableName=name,
            createTime=record.created_ms // 1_000,
            lastAccessTime=0,
            # Without columns Hive's own client takes those of the table, and the answer is a fifth of the size.
            sd=parquet_storage(columns, _MARK),
            parameters={},
            catName=record.catalog,
        )
    )
    before, after = whole.split(string_value(_MARK))
    return before, after
