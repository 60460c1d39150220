"""A plan with few files decodes only the one page that has them, with the same result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lakemark_core.expressions import parse_predicate
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.file_index.pages import blocks
from lakemark_server.file_index.pages.contents import StoredEntries
from lakemark_server.file_index.planning.compact import MATCHES
from lakemark_server.file_index.planning.planner import Planner
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.snapshots.versions import history
from lakemark_server.store.keyspace import MAIN
from lakemark_server.timeline.lineage import OF_MAIN
from tests.unit.snapshots.world import World

FILES = 600


def test_files_of_one_page_and_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STORED_FILES_MIN", 100)
    monkeypatch.setattr(blocks, "BLOCK_BYTES_MAX", 700)
    world = World.open(tmp_path)
    world.commit(MAIN, t.APPEND, [number % 5 for number in range(FILES)], staged=True)
    snapshots = Snapshots(world.store)
    snapshot = snapshots.load(world.table, OF_MAIN, 1)
    (entries,) = (part.entries for part in snapshot.parts)
    assert isinstance(entries, StoredEntries)
    ends = np.cumsum([page.entries for page in entries.pages]).tolist()
    assert len(ends) > 2
    whole = Planner().plan(snapshot, None).page(0, FILES, [1]).drop_columns([MATCHES.name])
    for first, last, several in (
        (0, 5, False),
        (ends[0] - 4, ends[0] - 1, False),
        (ends[0], ends[1] - 1, False),
        (FILES - 5, FILES - 1, False),
        (ends[0] - 4, ends[0], True),
        (ends[0] - 1, ends[1] - 1, True),
    ):
        snapshots.forget()
        # The ids in each file are its number and up to three more.
        plan = Planner(snapshots.cache).plan(snapshot, parse_predicate(f"id >= {first + 3} AND id <= {last}"))
        assert plan.files == last + 1 - first
        assert plan.page(0, FILES, [1]).drop_columns([MATCHES.name]).equals(whole.slice(first, plan.files))
        assert (plan.rows, plan.size_bytes) == (5 * plan.files, 10 * plan.files)
        names = snapshots.cache.keys()
        decoded = {key[1] for key in names if isinstance(key, tuple) and key[-1] == "#told"}
        assert decoded == {len(ends) if several else 1}, "how many pages"
