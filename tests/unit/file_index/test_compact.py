"""A client decodes compact columns to the page that they stand for."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.files.compact import expanded
from lakemark_core.expressions import parse_predicate
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.file_index.pages.page import Page, PathRuns, encode_page
from lakemark_server.file_index.pages.runs import joined
from lakemark_server.file_index.planning.planner import Planner
from lakemark_server.snapshots.service import Snapshots
from lakemark_server.snapshots.versions import history
from lakemark_server.store.keyspace import MAIN
from lakemark_server.timeline.lineage import OF_MAIN
from tests.unit.file_index.compacted import check_compact
from tests.unit.snapshots.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Blocks in place, pages of a base with a removed file, and files in memory."""
    opened = World.open(tmp_path_factory.mktemp("world"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(history, "STORED_FILES_MIN", 100)
        opened.commit(MAIN, t.APPEND, [number // 100 for number in range(200)], staged=True)
        opened.commit(MAIN, t.APPEND, [number % 150 for number in range(300)], staged=True)
        opened.fold(MAIN)
        opened.commit(MAIN, t.APPEND, [1, 1, 2, 1], removed=sorted(opened.content(OF_MAIN, 2))[150:152])
    yield opened
    opened.store.close()


@settings(max_examples=100)
@given(
    st.sampled_from([None, "m = 1", "id < 3", "m > 1 OR id IS NULL"]),
    st.integers(0, 520),
    st.integers(0, 520),
    st.sampled_from([(), (1,)]),
    st.booleans(),
)
def test_any_page(
    world: World, sql: str | None, offset: int, limit: int, statistics: tuple[int, ...], small: bool
) -> None:
    snapshots = Snapshots(world.store, 1_000 if small else 1 << 30)
    planner = Planner(snapshots.cache)
    plan = planner.plan(snapshots.load(world.table, OF_MAIN, 3), None if sql is None else parse_predicate(sql))
    for _ in range(2):  # made, and from the cache
        check_compact(planner, plan, offset, limit, statistics)


def test_pages_end_with_parts(world: World) -> None:
    plan = Planner().plan(Snapshots(world.store).load(world.table, OF_MAIN, 3), None)
    ends, offset = [], 0
    while offset < plan.files:
        offset += plan.whole_parts(offset, 350)
        ends.append(offset)
    parts = [one.files for one in plan.selections]
    assert set(ends) <= {sum(parts[:count]) for count in range(1, len(parts) + 1)}
    assert ends[-1] == plan.files
    assert plan.whole_parts(0, 10) == 10, "no part is that small"


def test_directories_that_have_not_their_groups_names() -> None:
    """Pages of each kind: all directories are stored, none is, and paths of another shape."""
    shapes = [("1/m=1/{}/f", "d{}"), ("1/m=1/{}/f", "g{}"), ("1/x/y/{}/f", "d{}")]
    batches = [
        pa.table(
            {
                "path": [shape.format(directory.format(at)) for at in range(4)],
                "file_group": [f"g{at}" for at in range(4)],
                "partition": ["m=1"] * 4,
            }
        ).to_batches()[0]
        for shape, directory in shapes
    ]
    pages = [Page(encode_page(batch)).path_runs() for batch in batches]
    assert pages[2] is None
    two = [page for page in pages if page is not None]
    columns = {
        name: joined(list(runs)).array for name, runs in zip(PathRuns._fields, zip(*two, strict=True), strict=True)
    }
    columns["file_group"] = pa.concat_arrays([batch.column("file_group") for batch in batches[:2]])
    paths = [path for batch in batches[:2] for path in batch.column("path").to_pylist()]
    assert expanded(pa.table(columns)).column("path").to_pylist() == paths
