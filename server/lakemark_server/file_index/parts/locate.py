"""Finds files of a snapshot by their paths.

A path begins with the instant that wrote the file. So only the parts with files of that instant are searched, and in
these only its files. All other paths are never compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_server.file_index.arrow import AnyArray, take
from lakemark_server.file_index.entries.columns import instants_of
from lakemark_server.file_index.pages.contents import Integers
from lakemark_server.file_index.parts.part import Part


class Located(NamedTuple):
    """Live entries of one part whose paths were searched for: their places, and for each the index of its path."""

    part: int
    places: Integers
    paths: Integers


def locate(parts: Sequence[Part], paths: AnyArray) -> list[Located]:
    """The live entries with these paths, in the order of the parts. Of equal paths only the first is matched."""
    wanted = np.unique(instants_of(paths))
    candidates: list[tuple[int, Integers, AnyArray]] = []
    for at, part in enumerate(parts):
        places = written_by(part, wanted)
        if len(places):
            candidates.append((at, places, take(part.column("path"), places)))
    if not candidates:
        return []
    chunked: Any = pa.chunked_array([texts for *_, texts in candidates], pa.string())
    matches = cast(Any, pc).index_in(chunked, value_set=paths).fill_null(-1).to_numpy()
    located: list[Located] = []
    start = 0
    for at, places, _ in candidates:
        index = np.asarray(matches[start : start + len(places)], np.int64)
        start += len(places)
        if (index >= 0).any():
            located.append(Located(at, places[index >= 0], index[index >= 0]))
    return located


def written_by(part: Part, instants: Integers) -> Integers:
    """The places of the live entries that these instants wrote, which are in ascending order."""
    low, high = part.entries.instant_range
    near = instants[np.searchsorted(instants, low) : np.searchsorted(instants, high, side="right")]
    if not len(near):
        return near
    written = part.entries.instants
    of_these = written == near[0] if len(near) == 1 else np.isin(written, near)
    return np.flatnonzero(of_these if part.live is None else of_these & part.live)


def without_paths(parts: Sequence[Part], paths: AnyArray) -> list[Part]:
    """The parts without these files. The part list is otherwise unchanged."""
    located = {entries.part: entries.places for entries in locate(parts, paths)}
    left: list[Part] = []
    for at, part in enumerate(parts):
        places = located.get(at)
        if places is None:
            left.append(part)
            continue
        mask = np.ones(part.size, np.bool_)
        mask[places] = False
        kept = part.masked(mask)
        if kept is not None:
            left.append(kept)
    return left


def difference(some: Sequence[Part], others: Sequence[Part]) -> list[Part]:
    """The live files of ``some`` that are not alive in ``others``, as parts. What both share is not compared."""
    shared = {id(part.entries): part for part in others}
    left: list[Part] = []
    for part in some:
        twin = shared.get(id(part.entries))
        if twin is part:
            continue
        rest = part if twin is None else part.masked(~twin.live_mask())
        if rest is not None:
            left.append(rest)
    if not left:
        return []
    # A file that both have in different parts was merged into another part, or came back.
    paths = pa.concat_arrays([take(part.column("path"), np.flatnonzero(part.live_mask())) for part in left])
    both = np.zeros(len(paths), np.bool_)
    for entries in locate(others, paths):
        both[entries.paths] = True
    result: list[Part] = []
    start = 0
    for part in left:
        mask = np.zeros(part.size, np.bool_)
        mask[np.flatnonzero(part.live_mask())] = ~both[start : start + part.files]
        start += part.files
        rest = part.masked(mask)
        if rest is not None:
            result.append(rest)
    return result
