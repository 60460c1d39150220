"""The files of a snapshot, one page at a time, without looking at the others. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from lakemark_proto.v1 import types_pb2
from lakemark_server.file_index.arrow import take, texts
from lakemark_server.file_index.pages.contents import Integers
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.file_index.parts.part import Part

_SHOWN: Final = ("path", "size_bytes", "row_count", "file_group", "added_version")


class FileShown(NamedTuple):
    """A data file. ``path``: relative to the table's location. ``version``: which added it."""

    path: str
    size_bytes: int
    rows: int
    group: str
    is_delta: bool
    version: int


def files_of(snapshot: Snapshot, partition: str, offset: int, limit: int) -> list[FileShown]:
    """Files ``offset`` to ``offset + limit`` of a partition, in the order in which they came."""
    shown: list[FileShown] = []
    for part, places in _places(snapshot, partition):
        if offset >= len(places):
            offset -= len(places)
            continue
        shown += _shown(part, places[offset : offset + limit - len(shown)])
        offset = 0
        if len(shown) == limit:
            break
    return shown


def _places(snapshot: Snapshot, partition: str) -> Iterator[tuple[Part, Integers]]:
    for part in snapshot.parts:
        codes, names = part.partition_codes
        if partition in names:
            wanted = codes == names.index(partition)
            places = np.flatnonzero(wanted if part.live is None else wanted & part.live)
            if len(places):
                yield part, places


def _shown(part: Part, places: Integers) -> Iterator[FileShown]:
    paths, sizes, rows, groups, versions = (take(part.column(name), places) for name in _SHOWN)
    kinds = take(part.column("kind"), places).to_pylist()
    for path, size, count, group, version, kind in zip(
        texts(paths), sizes.to_pylist(), rows.to_pylist(), texts(groups), versions.to_pylist(), kinds, strict=True
    ):
        yield FileShown(path, size, count, group, kind == types_pb2.DELTA, version)
