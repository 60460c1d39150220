"""The outline of a branch's versions: their instants, and the restores and merges, which bring back files of others.

Versions never change, so the outline of a run of them can stay in a cache: the next clean does not read all live
versions again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_server.file_index.pages.source import Cache, kept
from lakemark_server.kv import Store
from lakemark_server.store.keyspace import VERSIONS

RUN: Final = 512


@dataclass(frozen=True, slots=True)
class Outline:
    """``versions`` and their ``instants``, in order.

    ``pointing``: the restores and merges among them; their records have nothing but the version and what it refers to.
    """

    versions: npt.NDArray[np.int64]
    instants: npt.NDArray[np.int64]
    pointing: tuple[VersionRecord, ...]

    @property
    def memory_bytes(self) -> int:
        return 300 + 2 * self.instants.nbytes + sum(200 + 2 * record.ByteSize() for record in self.pointing)

    def behind(self, version: int) -> Outline:
        """The outline of the versions after ``version``."""
        start = int(np.searchsorted(self.versions, version, side="right"))
        pointing = tuple(record for record in self.pointing if record.version > version)
        return Outline(self.versions[start:], self.instants[start:], pointing) if start else self


def outlines(store: Store, cache: Cache, table_id: int, key: str, after: int, upto: int) -> Iterator[Outline]:
    """Outlines of a branch's own versions ``after < version <= upto``, in runs. Removed versions may be in them."""
    for low in range(after - after % RUN, upto, RUN):
        last = min(upto, low + RUN)

        def read(low: int = low, last: int = last) -> Outline:
            begin, end = VERSIONS.key(table_id, key, low + 1), VERSIONS.key(table_id, key, last + 1)
            pairs = store.read(lambda tx: tx.get_range(begin, end, snapshot=True))
            return outline(VersionRecord.FromString(value) for _, value in pairs)

        whole = kept(cache, ("outline", table_id, key, low, last), read, lambda run: run.memory_bytes)
        yield whole.behind(after)


def outline(records: Iterable[VersionRecord]) -> Outline:
    """The outline of these versions, which are in order."""
    numbers, instants, pointing = [], [], []
    for record in records:
        numbers.append(record.version)
        instants.append(record.instant)
        if record.restored_version or record.HasField("merged"):
            merged = record.merged if record.HasField("merged") else None
            pointing.append(
                VersionRecord(version=record.version, restored_version=record.restored_version, merged=merged)
            )
    return Outline(np.array(numbers, np.int64), np.array(instants, np.int64), tuple(pointing))
