"""Totals of a plan by partition."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from lakemark_server.file_index.planning.planner import Plan


def partition_totals(plan: Plan) -> list[tuple[str, int, int, int]]:
    """(name, files, rows, bytes) of each partition with planned files, in order of name."""
    totals: defaultdict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = defaultdict(lambda: np.zeros(3, np.int64))
    for selection in plan.selections:
        codes, names = selection.part.partition_codes
        chosen = codes[selection.places]
        rows = selection.part.column("row_count").to_numpy()[selection.places]
        sizes = selection.part.column("size_bytes").to_numpy()[selection.places]
        counted = np.bincount(chosen, minlength=len(names))
        by_rows = np.bincount(chosen, rows.astype(np.float64), len(names)).astype(np.int64)
        by_size = np.bincount(chosen, sizes.astype(np.float64), len(names)).astype(np.int64)
        for at in np.flatnonzero(counted):
            totals[names[at]] += (counted[at], by_rows[at], by_size[at])
    return [(name, int(sums[0]), int(sums[1]), int(sums[2])) for name, sums in sorted(totals.items())]
