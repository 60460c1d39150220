"""What changed between two versions, as snapshots of the files that came and of those that went.

It is the net change: a file that came and went in between is in neither. Rewritten rows count as removed and added.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_server.snapshot.arrow import AnyArray
from lakemark_server.snapshot.fold import Mask, Part, Snapshot


def added_between(older: Snapshot, newer: Snapshot) -> Snapshot:
    """The files of ``newer`` that ``older`` does not have."""
    parts = [_masked(part, part.column("added_version").to_numpy() > older.version) for part in newer.parts]
    return Snapshot(newer.version, newer.schema, tuple(part for part in parts if part is not None), newer.record)


def removed_between(older: Snapshot, newer: Snapshot) -> Snapshot:
    """The files of ``older`` that ``newer`` does not have any more."""
    shared = {id(part) for part in newer.parts}
    candidates = [part for part in older.parts if id(part) not in shared]
    if not candidates:
        return Snapshot(older.version, older.schema, (), older.record)
    kept = pa.concat_arrays([part.live_entries().column("path") for part in newer.parts] or [pa.array([], pa.string())])
    parts = [_masked(part, ~_among(part, kept)) for part in candidates]
    return Snapshot(older.version, older.schema, tuple(part for part in parts if part is not None), older.record)


def _among(part: Part, paths: AnyArray) -> Mask:
    found = pc.is_in(part.column("path"), value_set=paths)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


def _masked(part: Part, mask: Mask) -> Part | None:
    live = mask if part.live is None else part.live & mask
    if not live.any():
        return None
    return part if live.all() else Part(part.entries, live)
