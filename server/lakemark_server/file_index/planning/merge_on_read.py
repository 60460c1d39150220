"""Files whose rows are merged with others when they are read: those of file groups with live deltas.

A row of such a group is made of a base row and of what deltas say of it, perhaps of single columns only. So neither may
be left out because of its own statistics: a base row that does not match may be changed into one that does, and a
matching one into one that does not. Only the partition decides, which the group's files share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.file_index.arrow import AnyArray, take
from lakemark_server.file_index.pages.contents import Mask
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.file_index.parts.part import Part


@dataclass(frozen=True, eq=False)
class MergedOnRead:
    """The file groups of a snapshot that have live deltas, and the names of the partitions that these are in."""

    groups: AnyArray
    partitions: frozenset[str]

    def mask(self, part: Part) -> Mask | None:
        """The entries of a part whose group has deltas; None: none of them.

        Groups are told apart by name alone, whatever their partition, which errs on the safe side.
        """
        if self.partitions.isdisjoint(part.partition_codes[1]):
            return None
        among = cast(Any, pc).is_in(part.column("file_group"), value_set=self.groups)
        mask = np.asarray(among.to_numpy(zero_copy_only=False), np.bool_)
        return mask if mask.any() else None


def merged_on_read(snapshot: Snapshot) -> MergedOnRead | None:
    """None if there are no deltas."""
    merged = snapshot.derived(MergedOnRead, lambda: _find(snapshot.parts))
    return merged if merged.partitions else None


def _find(parts: Sequence[Part]) -> MergedOnRead:
    groups: list[AnyArray] = []
    partitions: set[str] = set()
    for part in parts:
        if part.entries.has_deltas:
            places = np.flatnonzero((part.column("kind").to_numpy() == pb.DELTA) & part.live_mask())
            groups.append(take(part.column("file_group"), places))
            codes, names = part.partition_codes
            partitions.update(names[code] for code in np.unique(codes[places]).tolist())
    merged: AnyArray = pa.concat_arrays(groups).unique() if groups else pa.array([], pa.string())
    return MergedOnRead(merged, frozenset(partitions))
