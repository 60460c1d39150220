"""File slices as serialized Thrift partitions, joined from pieces that are encoded once for each snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.errors import InvalidPredicate
from lakemark.types import parse_partition_name, partition_name, partition_value_from_string, to_arrow
from lakemark_hms.filters import evaluate, parse_filter
from lakemark_hms.lake.names import hidden_name
from lakemark_hms.lake.tables import parquet_storage, slice_key
from lakemark_hms.wire.splice import encode_struct, string_list_value, string_value
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.snapshot.fold import Part, Snapshot
from lakemark_thrift import ttypes

_MARK: Final = "\x00location\x00"
_VALUES_HEAD: Final = b"\x0f\x00\x01"  # field 1, a list
Places = npt.NDArray[np.int64]


class Slices:
    """The live file slices of one snapshot."""

    def __init__(self, table: LakeTable, snapshot: Snapshot) -> None:
        self._table = table
        self._snapshot = snapshot
        self._keys = [field.name for field in snapshot.schema.partition_fields]
        self._before, self._after = _template(table, snapshot.version)

    def all(self, limit: int = -1) -> list[bytes]:
        """Serialized partitions, in the order of their versions; at most ``limit`` of them if it is not negative."""
        return self._encoded(self._chosen(None), limit)

    def filtered(self, filter_text: str, limit: int = -1) -> list[bytes]:
        """Those whose partition values satisfy a metastore filter; all of them if it cannot be understood."""
        return self._encoded(self._chosen(filter_text), limit)

    def names(self, limit: int = -1) -> list[str]:
        """``month=1/lakemark_slice=…``, unique."""
        key = slice_key(self._snapshot.schema)
        found = []
        for part, places in self._chosen(None):
            for name, path in self._slices(part, places):
                pair = partition_name([key], [_slice_value(path)])
                found.append(f"{name}/{pair}" if name else pair)
                if len(found) == limit:
                    return found
        return found

    def count(self, filter_text: str) -> int:
        return sum(len(places) for _, places in self._chosen(filter_text))

    def _chosen(self, filter_text: str | None) -> Iterator[tuple[Part, Places]]:
        for part in self._snapshot.parts:
            live = np.ones(part.entries.num_rows, np.bool_) if part.live is None else part.live
            if filter_text and self._keys:
                codes, names = part.partition_codes
                live = live & self._matches(names, filter_text)[codes]
            places = np.flatnonzero(live)
            if len(places):
                yield part, places

    def _matches(self, names: Sequence[str], filter_text: str) -> npt.NDArray[np.bool_]:
        """Which partitions satisfy the filter, decided once for each partition and not for each file."""
        fields = self._snapshot.schema.partition_fields
        texts = [[text for _, text in parse_partition_name(name)] for name in names]
        columns: dict[str, pa.Array[Any]] = {}
        for at, field in enumerate(fields):
            values = [partition_value_from_string(row[at], field.type) for row in texts]
            columns[field.name.lower()] = pa.array(values, to_arrow(field.type))
        try:
            return evaluate(parse_filter(filter_text), columns, len(names))
        except InvalidPredicate:
            return np.ones(len(names), np.bool_)

    def _slices(self, part: Part, places: Places) -> Iterator[tuple[str, str]]:
        """(partition name, path) of each."""
        codes, names = part.partition_codes
        paths = part.column("path").take(pa.array(places)).to_pylist()  # type: ignore[arg-type]
        for code, path in zip(codes[places].tolist(), paths, strict=True):
            yield names[code], path or ""

    def _encoded(self, chosen: Iterator[tuple[Part, Places]], limit: int) -> list[bytes]:
        location = self._table.record.location
        before, after = self._before, self._after
        values: dict[str, list[str]] = {}
        found: list[bytes] = []
        for part, places in chosen:
            for name, path in self._slices(part, places if limit < 0 else places[: limit - len(found)]):
                own = values.get(name)
                if own is None:
                    own = values[name] = [text for _, text in parse_partition_name(name)] if name else []
                directory = path.rpartition("/")[0]
                found.append(
                    b"".join(
                        (
                            _VALUES_HEAD,
                            string_list_value([*own, _slice_value(path)]),
                            before,
                            string_value(f"{location}/{directory}"),
                            after,
                        )
                    )
                )
        return found


def _slice_value(path: str) -> str:
    """Unique in a partition: the instant that wrote the slice and the slice's directory."""
    parts = path.split("/")
    return f"{parts[0]}.{parts[-2]}"


def _template(table: LakeTable, version: int) -> tuple[bytes, bytes]:
    """The bytes of a partition after its values up to its location, and after its location."""
    record = table.record
    whole = encode_struct(
        ttypes.Partition(
            dbName=record.database,
            tableName=hidden_name(record.name, version),
            createTime=record.created_ms // 1_000,
            lastAccessTime=0,
            # Without columns a client takes those of the table, and the answer is a fifth of the size.
            sd=parquet_storage(None, _MARK),
            parameters={},
            catName=record.catalog,
        )
    )
    before, after = whole.split(string_value(_MARK))
    return before, after
