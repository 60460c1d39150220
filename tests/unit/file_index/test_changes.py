"""The net change between two versions, against sets of paths."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.types import INT, Field, Schema
from lakemark_proto.store.v1.store_pb2 import VersionRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.file_index.arrow import texts
from lakemark_server.file_index.entries.columns import from_messages
from lakemark_server.file_index.parts.changes import added_between, removed_between
from lakemark_server.file_index.parts.fold import Snapshot, empty
from tests.snapshots import folded

SCHEMA = Schema.build([Field(1, "id", INT), Field(2, "m", INT)], ["m"], 1)
COMMITS = st.lists(
    st.tuples(
        st.sampled_from([t.APPEND, t.APPEND, t.OVERWRITE_PARTITIONS, t.OVERWRITE_TABLE]),
        st.lists(st.integers(0, 2), max_size=4),
    ),
    max_size=12,
)


def _paths(snapshot: Snapshot) -> set[str]:
    return set(texts(snapshot.entries().column("path"))) if snapshot.parts else set()


@given(COMMITS, st.data())
def test_added_and_removed_are_the_difference_of_the_two(
    commits: list[tuple[t.Operation.ValueType, list[int]]], data: st.DataObject
) -> None:
    snapshots = [empty(SCHEMA)]
    for version, (operation, months) in enumerate(commits, 1):
        files = [
            p.DataFile(path=f"{version}/m={m}/{at}/f", partition=[p.Value(integer=m)]) for at, m in enumerate(months)
        ]
        record = VersionRecord(version=version, operation=operation, partitions=sorted({f"m={m}" for m in months}))
        snapshots.append(folded(snapshots[-1], [(record, [from_messages(files, SCHEMA)])], SCHEMA))
    older = data.draw(st.integers(0, len(commits)))
    newer = data.draw(st.integers(older, len(commits)))
    before, after = _paths(snapshots[older]), _paths(snapshots[newer])
    assert _paths(added_between(snapshots[older], snapshots[newer])) == after - before
    assert _paths(removed_between(snapshots[older], snapshots[newer])) == before - after
