"""What an instant touches: collected from profile, added and removed files; bounded; followed across compactions."""

from __future__ import annotations

from typing import Any

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_proto.store.v1.store_pb2 import InstantRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.file_index.entries.columns import FIXED, from_messages
from lakemark_server.timeline.conflicts.changes import Change, Operation, by_group, of_record
from lakemark_server.timeline.conflicts.group_ids import base_file, hash_of
from lakemark_server.timeline.conflicts.touched import COLUMNS_MAX, LISTED_MAX, TouchedSet, follow_compactions
from lakemark_server.timeline.instants import staging
from lakemark_server.timeline.instants.staging import NO_ENTRIES, Entries, with_removed
from tests.lakes import SCHEMA, Lake, files, whole

INSTANT = 1_800_000_000_000


def entry(group: str, instant: int = INSTANT, kind: p.SliceKind.ValueType = p.BASE, base: int = 0) -> p.DataFile:
    return p.DataFile(
        path=f"{instant}/m=1/{group}-{kind}/a",
        file_group=group,
        kind=kind,
        partition=[whole(1)],
        base_instant=base,
    )


def delta(group: str, base: int) -> p.DataFile:
    return entry(group, kind=p.DELTA, base=base)


@pytest.fixture
def lake_table(lake: Lake) -> Any:
    return lake.table()


def entries(table: Any, added: list[p.DataFile], removed: list[p.DataFile]) -> Entries:
    found = staging.read_entries(files(*added), table, INSTANT) if added else NO_ENTRIES
    return with_removed(found, from_messages(removed, SCHEMA).select(FIXED.names)) if removed else found


def touched_by(operation: Operation, given: Entries) -> Change:
    record = InstantRecord(instant=INSTANT, operation=operation)
    given.add_touched(record)
    return of_record(record)


def on(*bases: tuple[str, int]) -> frozenset[int]:
    """Names of base files: (file group, instant)."""
    return frozenset(base_file("m=1", group, instant) for group, instant in bases)


def groups(*names: str) -> frozenset[int]:
    return frozenset(map(hash_of, names))


# -- what counts -------------------------------------------------------------------------------------------------------


def test_deltas_touch_their_group_and_the_base_file_under_them(lake_table: Any) -> None:
    change = touched_by(t.UPSERT, entries(lake_table, [delta("g", 5), delta("h", 0)], []))
    assert change.groups == groups("g", "h")
    assert change.files == on(("g", 5), ("h", 0))
    assert change.removed == frozenset()
    assert change.group_names == {hash_of("g"): "g", hash_of("h"): "h"}


def test_removed_files_touch_their_group_and_themselves(lake_table: Any) -> None:
    gone = [entry("g", 5), entry("h", 6, p.DELTA, base=4), entry("i", 7, p.DELTA)]
    change = touched_by(t.UPSERT, entries(lake_table, [], gone))
    assert change.groups == groups("g", "h", "i")
    assert change.files == on(("g", 5), ("h", 4), ("i", 0)), "of a delta the base under it"
    assert change.removed == frozenset(hash_of(one.path) for one in gone)


@pytest.mark.parametrize("operation", [t.UPSERT, t.DELETE, t.OVERWRITE_PREDICATE])
def test_who_changes_rows_touches_the_groups_that_it_makes(lake_table: Any, operation: Operation) -> None:
    """Two writers that make the first file of a bucket may add the same keys."""
    change = touched_by(operation, entries(lake_table, [entry("g"), entry("new")], [entry("g", 5)]))
    assert change.groups == groups("g", "new")
    assert change.files == on(("g", 5), ("new", 0)), "what is replaced is not new"
    assert change.begun == on(("new", 0))


@pytest.mark.parametrize("operation", [t.APPEND, t.OVERWRITE_PARTITIONS, t.OVERWRITE_TABLE, t.CLUSTER])
def test_new_files_of_others_touch_nothing(lake_table: Any, operation: Operation) -> None:
    change = touched_by(operation, entries(lake_table, [entry("g")], []))
    assert change.groups == change.begun == frozenset()


def test_a_compaction_touches_the_file_that_it_makes_too(lake_table: Any) -> None:
    gone = [entry("g", 5), entry("g", 6, p.DELTA, base=5)]
    change = touched_by(t.COMPACT, entries(lake_table, [entry("g")], gone))
    assert change.groups == groups("g")
    assert change.files == on(("g", 5), ("g", INSTANT))
    assert not change.begun


def test_deletes_that_a_compaction_keeps_touch_what_its_base_files_touch(lake_table: Any) -> None:
    gone = [entry("g", 5), entry("g", 6, p.DELTA, base=5), entry("h", 6, p.DELTA)]
    change = touched_by(t.COMPACT, entries(lake_table, [entry("g"), delta("g", INSTANT), delta("h", INSTANT)], gone))
    assert change.groups == groups("g", "h")
    assert change.files == on(("g", 5), ("g", INSTANT), ("h", 0), ("h", INSTANT))
    assert not change.begun, "h has no base file yet"


@pytest.mark.parametrize("operation", [t.UPSERT, t.COMPACT])
def test_who_replaces_deltas_alone_begins_their_group(lake_table: Any, operation: Operation) -> None:
    """Another writer that has not seen the deltas may also be about to add the first base file."""
    gone = [entry("g", 5, p.DELTA), entry("h", 5), entry("h", 6, p.DELTA, base=5)]
    change = touched_by(operation, entries(lake_table, [entry("g"), entry("h")], gone))
    assert change.begun == on(("g", 0))


def test_the_profile_counts_too() -> None:
    touched = TouchedSet()
    touched.add_profile(t.WorkProfile(file_groups=["g"], replaced_files=["1/m=1/g/a"], columns=[3, 4]))
    record = InstantRecord(operation=t.UPSERT)
    touched.write_to(record)
    change = of_record(record)
    assert (change.groups, change.removed, change.columns) == (groups("g"), groups("1/m=1/g/a"), frozenset({3, 4}))
    more = TouchedSet.of(record)
    more.add_profile(t.WorkProfile(all_file_groups=True))
    more.write_to(record)
    change = of_record(record)
    assert (change.all_groups, change.groups, change.group_names) == (True, frozenset(), {})
    assert change.removed == groups("1/m=1/g/a")
    with pytest.raises(InvalidArgument, match="at most 1000 columns"):
        TouchedSet().add_profile(t.WorkProfile(columns=range(COLUMNS_MAX + 1)))


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 3])
def test_what_is_too_much_to_list_becomes_all(lake_table: Any, pieces: int) -> None:
    record = InstantRecord(instant=INSTANT, operation=t.UPSERT)

    def stage(first: int, upto: int) -> Change:
        step = -(-(upto - first) // pieces)
        for low in range(first, upto, step):
            gone = [entry(f"g{number}", 5) for number in range(low, min(upto, low + step))]
            entries(lake_table, [], gone).add_touched(record)
        return of_record(record)

    full = stage(0, LISTED_MAX)
    assert (len(full.groups), len(full.files), len(full.removed)) == (LISTED_MAX, LISTED_MAX, LISTED_MAX)
    assert (full.all_groups, full.all_files, full.all_removed) == (False, False, False)
    more = stage(LISTED_MAX, LISTED_MAX + 1)
    assert (more.all_groups, more.all_files, more.all_removed) == (True, True, True)
    assert more.groups | more.files | more.removed == frozenset()
    assert more.group_names == {}


def test_more_groups_begun_than_are_listed(lake_table: Any) -> None:
    made = [entry(f"g{number}") for number in range(LISTED_MAX + 1)]
    assert len(touched_by(t.UPSERT, entries(lake_table, made[1:], [])).begun) == LISTED_MAX
    change = touched_by(t.UPSERT, entries(lake_table, made, []))
    assert (change.all_begun, change.begun, change.all_removed) == (True, frozenset(), False)


def test_names_are_given_up_before_hashes() -> None:
    touched = TouchedSet()
    touched.add_profile(t.WorkProfile(file_groups=["g" * 6_000, "h" * 6_000]))
    record = InstantRecord()
    touched.write_to(record)
    assert len(of_record(record).groups) == 2
    assert of_record(record).group_names == {}


# -- compactions since -------------------------------------------------------------------------------------------------


def compaction(group: str, *bases: int, **more: Any) -> Change:
    files_ = on(*((group, base) for base in bases))
    fields: dict[str, Any] = {"groups": groups(group), "files": files_} | more
    return Change(instant=9, operation=t.COMPACT, version=4, partitions=frozenset({"m=1"}), **fields)


def upsert(*bases: tuple[str, int], **more: Any) -> tuple[InstantRecord, Change]:
    change = Change(1, t.UPSERT, groups=groups(*(group for group, _ in bases)), files=on(*bases), **more)
    record = InstantRecord()
    record.touched.files[:] = sorted(change.files)
    return record, change


def followed(others: list[Change], *bases: tuple[str, int]) -> frozenset[int]:
    record, mine = upsert(*bases)
    after = follow_compactions(record, mine, others)
    assert frozenset(record.touched.files) == after.files
    assert after.groups == mine.groups
    return after.files


def test_a_file_and_what_compactions_made_of_it_are_one() -> None:
    chain = [compaction("g", 6, 7), compaction("g", 5, 6)]  # newest first, as a log is read
    assert followed(chain, ("g", 5)) == on(("g", 5), ("g", 6), ("g", 7))
    assert followed(chain[::-1], ("g", 5)) == on(("g", 5), ("g", 6), ("g", 7))
    assert followed([compaction("g", 6, 7)], ("g", 5)) == on(("g", 5)), "another file of the group"
    assert followed([compaction("h", 5, 6)], ("g", 5)) == on(("g", 5)), "another group"
    assert followed([], ("g", 5)) == on(("g", 5))


def test_what_a_compaction_did_to_other_groups_does_not_count() -> None:
    elsewhere = frozenset(base_file("m=2", "g", instant) for instant in (5, 6))
    wide = Change(1, t.COMPACT, groups=groups("g", "h"), files=on(("g", 5), ("g", 6), ("h", 5), ("h", 6)) | elsewhere)
    assert followed([wide], ("g", 5)) == on(("g", 5), ("g", 6))


def test_other_operations_make_no_file_the_same() -> None:
    rewritten = Change(2, t.UPSERT, groups=groups("g"), files=on(("g", 5), ("g", 6)))
    assert followed([rewritten], ("g", 5)) == on(("g", 5))


def test_too_many_compacted_files_become_all() -> None:
    for others in ([compaction("g", 5, *range(1_000, 1_000 + LISTED_MAX))], [compaction("g", all_files=True)]):
        record, mine = upsert(("g", 5))
        after = follow_compactions(record, mine, others)
        assert (after.all_files, after.files) == (True, frozenset())
        assert (record.touched.all_files, len(record.touched.files)) == (True, 0)


def test_branches_are_compared_by_group() -> None:
    _, change = upsert(("g", 5))
    assert (by_group(change).all_files, by_group(change).files) == (True, frozenset())
    assert by_group(change).groups == change.groups
    assert not by_group(Change(1, t.APPEND)).all_files
