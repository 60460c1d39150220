"""Columns with repeated values, which are stored once for each run of equal ones (Arrow's run-end encoding)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark_server.file_index.arrow import AnyArray, take


class Runs(NamedTuple):
    """``ends`` has the place after the last entry of each run. Neighbouring runs may have the same value."""

    ends: npt.NDArray[np.int32]
    values: AnyArray

    @property
    def array(self) -> AnyArray:
        """The runs as a run-end encoded Arrow array."""
        return cast(AnyArray, cast(Any, pa).RunEndEncodedArray.from_arrays(pa.array(self.ends), self.values))

    def at(self, places: npt.NDArray[np.int64]) -> Runs:
        """The entries at these places, in their order; at least one."""
        of_run = np.searchsorted(self.ends, places, side="right")
        ends = ends_of(of_run)
        return Runs(ends, take(self.values, of_run[ends - 1]))


def ends_of(*codes: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int32]:
    """The ends of the longest runs in which none of these columns changes. The columns are not empty."""
    changes = np.logical_or.reduce([column[1:] != column[:-1] for column in codes])
    return np.append(np.flatnonzero(changes) + 1, len(codes[0])).astype(np.int32)


def constant(value: AnyArray, size: int) -> Runs:
    """One run. ``value`` is an array of one element."""
    return Runs(np.array([size], np.int32), value)


def runs_of(array: AnyArray) -> Runs:
    """The longest runs of equal values of an array."""
    encoded: Any = pc.call_function("run_end_encode", [array])
    return Runs(encoded.run_ends.to_numpy(), encoded.values)


def joined(runs: Sequence[Runs]) -> Runs:
    """The runs one after the other; at least one."""
    if len(runs) == 1:
        return runs[0]
    starts = np.cumsum([0, *(int(piece.ends[-1]) for piece in runs[:-1])])
    ends = np.concatenate([piece.ends + start for piece, start in zip(runs, starts, strict=True)]).astype(np.int32)
    return Runs(ends, pa.concat_arrays([piece.values for piece in runs]))
