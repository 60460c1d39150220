"""Files whose rows are merged with others when they are read: those of file groups with live deltas.

A row of such a group is made of a base row and of what deltas say of it, perhaps of single columns only. So neither may
be left out because of its own statistics: a base row that does not match may be changed into one that does, and a
matching one into one that does not. Only the partition decides, which the group's files share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_proto.v1 import types_pb2 as pb
from lakemark_server.snapshot.contents import Integers, Mask
from lakemark_server.snapshot.fold import Snapshot
from lakemark_server.snapshot.parts import Part

_NAME: Final = "merged_on_read"


def merged_on_read(snapshot: Snapshot) -> Sequence[Mask | None] | None:
    """For each part its entries whose group has live deltas (None: none of them); None if there are no deltas at all.

    Groups are told apart by name alone, whatever their partition, which errs on the safe side.
    """
    if _NAME not in snapshot.derived:
        snapshot.derived[_NAME] = _masks(snapshot.parts)
    return cast("Sequence[Mask | None] | None", snapshot.derived[_NAME])


def _masks(parts: Sequence[Part]) -> Sequence[Mask | None] | None:
    groups = [part.column("file_group").filter(pa.array(_deltas(part))) for part in parts if part.entries.has_deltas]
    if not sum(map(len, groups)):
        return None
    wanted = pa.concat_arrays(groups).unique()
    found: list[Mask | None] = []
    for part in parts:
        among = cast(Any, pc).is_in(part.column("file_group"), value_set=wanted)
        mask = np.asarray(among.to_numpy(zero_copy_only=False), np.bool_)
        found.append(mask if mask.any() else None)
    return found


def _deltas(part: Part) -> Mask:
    kinds: Integers = part.column("kind").to_numpy()
    return np.asarray((kinds == pb.DELTA) & part.live_mask(), np.bool_)
