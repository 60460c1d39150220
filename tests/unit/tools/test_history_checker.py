"""The checker finds each anomaly in histories made by hand, and nothing in correct ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.histories import MAIN, Alone, Clean, Comparison, DryMerge, History, Operation, Outcome, Place, Version, Write
from tests.history_checker import check

A, B, DEV = ("a", MAIN), ("b", MAIN), ("a", "dev")
ALL = frozenset({""})


def write(began: int, ended: int, versions: dict[Place, int], outcome: Outcome = "ok", **more: Any) -> Operation:
    """A commit of one file in each place. Its instant has its start time as its number."""
    name = "+".join(f"{place[0]}{place[1][:1]}{version}" for place, version in versions.items())
    told = versions if outcome == "ok" else dict.fromkeys(versions, 0)
    writes = {
        place: Write(added=frozenset({f"{began}"}), instant=began, version=told[place], **more) for place in versions
    }
    return Operation(f"write {name}", began, ended, outcome, writes)


def read(began: int, ended: int, versions: dict[Place, int], **files: str) -> Operation:
    """``files``: those on main of a table, separated by blanks."""
    contents = {(table, MAIN): frozenset(names.split()) for table, names in files.items()}
    return Operation(f"read at {began}", began, ended, reads=versions, contents=contents)


def listed(*instants: int, first: int = 1) -> list[Version]:
    return [Version(version, instant) for version, instant in enumerate(instants, first)]


TWO = {A: listed(10, 30), B: listed(10)}
BOTH = write(10, 20, {A: 1, B: 1})
SECOND = write(30, 40, {A: 2})


@pytest.mark.parametrize(
    "more",
    [
        [],
        [read(50, 60, {A: 2, B: 1}, a="10 30", b="10")],
        [read(5, 15, {A: 0, B: 0}, a="", b="")],
        [read(5, 35, {A: 2, B: 1})],
        [read(12, 35, {A: 0}, a=""), read(36, 39, {A: 2})],
        [read(12, 14, {A: 0}), read(15, 16, {B: 1}, b="10")],
        [write(45, 46, {A: 3}, "refused"), write(45, 46, {A: 3, B: 2}, "unknown")],
    ],
)
def test_right_histories(more: list[Operation]) -> None:
    assert check(History([BOTH, SECOND, *more], TWO)) == []


@pytest.mark.parametrize(
    ("operations", "versions", "words"),
    [
        pytest.param([BOTH, SECOND], {A: listed(10), B: listed(10)}, "it is lost", id="lost commit"),
        pytest.param([BOTH, SECOND], {A: listed(10, 31), B: listed(10)}, "it is lost", id="another one in its place"),
        pytest.param([BOTH, SECOND], {A: [Version(1, 10), Version(3, 30)], B: listed(10)}, "gap", id="gap"),
        pytest.param([BOTH, SECOND], {A: listed(10, 30, 30), B: listed(10)}, "duplicate", id="twice"),
        pytest.param([BOTH, SECOND, replace(SECOND, what="two")], TWO, "both are version 2", id="told twice"),
        pytest.param([BOTH], TWO, "nobody made version 2", id="out of nothing"),
        pytest.param(
            [BOTH, write(30, 40, {A: 2}, "refused")], TWO, "was refused and has happened", id="refused and done"
        ),
        pytest.param(
            [write(10, 20, {A: 1, B: 1}, "unknown")], {A: listed(10), B: []}, "half of", id="half a transaction stored"
        ),
        pytest.param([BOTH, SECOND, read(50, 60, {A: 3})], TWO, "never was", id="a version from nowhere"),
        pytest.param(
            [BOTH, SECOND, read(50, 60, {A: 2}, a="30")], TWO, "version 2 of a@main without 10", id="wrong content"
        ),
        pytest.param([BOTH, SECOND, read(21, 25, {A: 0})], TWO, "it had ended when", id="stale read"),
        pytest.param(
            [BOTH, SECOND, read(31, 32, {A: 2}), read(33, 34, {A: 1})], TWO, "no order", id="a reader goes back"
        ),
        pytest.param([BOTH, SECOND, read(12, 15, {A: 1, B: 0})], TWO, "no order", id="half a transaction seen"),
        pytest.param([SECOND, write(50, 60, {A: 1})], {A: listed(50, 30)}, "no order", id="versions against time"),
        pytest.param(
            [write(10, 90, {A: 1, B: 2}), write(11, 91, {A: 2, B: 1})],
            {A: listed(10, 11), B: listed(11, 10)},
            "no order",
            id="two transactions over two tables",
        ),
        pytest.param(
            [write(10, 90, {A: 1}), write(11, 90, {B: 1}), read(12, 80, {A: 1, B: 0}), read(13, 80, {A: 0, B: 1})],
            {A: listed(10), B: listed(11)},
            "no order",
            id="two readers see two commits in two orders",
        ),
        pytest.param(
            [write(10, 20, {A: 1}), write(30, 40, {B: 1}), read(9, 90, {A: 0, B: 1})],
            {A: listed(10), B: listed(30)},
            "no order",
            id="not at one moment",
        ),
        pytest.param(
            [BOTH, write(30, 40, {A: 2}, removed=frozenset({"10"})), write(31, 41, {A: 3}, removed=frozenset({"10"}))],
            {A: listed(10, 30, 31), B: listed(10)},
            "takes 10 out of what is before it",
            id="lost update",
        ),
        pytest.param(
            [BOTH, SECOND, Operation("over", 30, 50, writes={A: Write(clears=ALL, read=1, saw=ALL, version=3)})],
            {A: listed(10, 30, 31), B: listed(10)},
            "over (version 3 of a@main) comes after write am2 (version 2 of a@main), which it should have seen",
            id="an overwrite of what it has not read",
        ),
    ],
)
def test_each_anomaly(operations: list[Operation], versions: dict[Place, list[Version]], words: str) -> None:
    problems = check(History(operations, versions))
    assert any(words in problem for problem in problems), problems


def test_what_is_unknown_happens_once_or_never() -> None:
    unknown = write(30, 0, {A: 2}, "unknown")
    assert check(History([BOTH, unknown, read(50, 60, {A: 2}, a="10 30")], TWO)) == []
    assert check(History([BOTH, unknown, read(50, 60, {A: 1}), read(70, 80, {A: 2})], TWO)) == []
    assert check(History([BOTH, unknown, read(20, 25, {A: 2})], TWO)) != [], "before it began"
    assert check(History([BOTH, unknown, read(50, 60, {A: 2}), read(70, 80, {A: 1})], TWO)) != [], "and gone again"


# Version 3 of branch dev forks from 2; b goes back to 1 twice, and main merges dev up to 4.
CREATE = Operation("create", 50, 51, creates=DEV, creates_from=A)
RESTORE = Operation("restore", 60, 61, writes={B: Write(restores=1, version=2)})
MERGE = Operation("merge", 80, 81, writes={A: Write(merges="dev", version=4, replayed=2)})
BRANCHED = History(
    [BOTH, SECOND, CREATE, write(52, 53, {DEV: 3}), write(54, 55, {DEV: 4}), RESTORE, write(70, 71, {A: 3}), MERGE],
    {
        A: [*TWO[A], Version(3, 70), Version(4, 80, merged=("dev", 2, 4))],
        B: [*TWO[B], Version(2, 60, restores=1)],
        DEV: listed(52, 54, first=3),
    },
    {DEV: (A, 2)},
)


def test_branches_merges_and_restores() -> None:
    reads = [
        read(72, 73, {A: 3, DEV: 4, B: 2}, a="10 30 70", b="10"),
        read(82, 83, {A: 4}, a="10 30 52 54 70"),
        Operation("read dev", 90, 91, reads={DEV: 4}, contents={DEV: frozenset({"10", "30", "52", "54"})}),
    ]
    assert check(replace(BRANCHED, operations=[*BRANCHED.operations, *reads])) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (MERGE, replace(MERGE, began_ns=53, ended_ns=54)),  # it has replayed what was committed later
        (RESTORE, replace(RESTORE, writes={B: Write(restores=1, version=3)})),
        (CREATE, replace(CREATE, began_ns=21, ended_ns=22)),  # it has version 2, which came later
        (CREATE, replace(CREATE, began_ns=56, ended_ns=57)),  # after a version of its own
    ],
)
def test_branches_in_the_wrong_order(before: Operation, after: Operation) -> None:
    operations = [after if one is before else one for one in BRANCHED.operations]
    assert check(replace(BRANCHED, operations=operations)) != []


def test_a_merge_replays_each_version_once() -> None:
    again = Operation("again", 84, 85, writes={A: Write(merges="dev", version=5, replayed=2)})
    versions = dict(BRANCHED.versions) | {A: [*BRANCHED.versions[A], Version(5, 84, merged=("dev", 2, 4))]}
    problems = check(History([*BRANCHED.operations, again], versions, BRANCHED.forks))
    assert problems == ["again (version 5 of a@main) was told to replay 2 versions, not 0"]


# After that dev merges main, which has all that it has.
BACK = Operation("back", 90, 91, writes={DEV: Write(merges=MAIN, version=5, replayed=1, fast_forward=True)})
FORWARDED = replace(
    BRANCHED,
    operations=[*BRANCHED.operations, BACK],
    versions={**BRANCHED.versions, DEV: [*BRANCHED.versions[DEV], Version(5, 90, merged=(MAIN, 2, 4))]},
)
DRY = DryMerge(0, fast_forward=True, refused="")
SAME = Comparison({A: Alone(0, 0, 0), DEV: Alone(0, 0, 0)}, {A: DRY, DEV: DRY})
APART = Comparison({A: Alone(1, 1, 0), DEV: Alone(0, 0, 0)}, {A: DryMerge(1, True, ""), DEV: DryMerge(0, False, "")})


def compare(began: int, found: Comparison, versions: dict[Place, int]) -> Operation:
    return Operation("compare", began, began + 1, reads=versions, compares=found)


def test_a_merge_back_and_comparisons() -> None:
    more = [
        compare(85, APART, {A: 4, DEV: 4}),
        compare(92, SAME, {A: 4, DEV: 5}),
        Operation("read dev", 93, 94, reads={DEV: 5}, contents={DEV: frozenset({"10", "30", "52", "54", "70"})}),
    ]
    assert check(replace(FORWARDED, operations=[*FORWARDED.operations, *more])) == []


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            BACK,
            replace(BACK, writes={DEV: replace(BACK.writes[DEV], replayed=3)}),
            "was told to replay 3 versions, not 1",
        ),
        (BACK, replace(BACK, writes={DEV: replace(BACK.writes[DEV], fast_forward=False)}), "was not told to be a fast"),
        (MERGE, compare(92, APART, {A: 4, DEV: 5}), "found of a@main Alone(versions=1, added=1, removed=0), not"),
        (MERGE, compare(85, SAME, {A: 4, DEV: 4}), "a merge of a@dev into a@main would not be a fast-forward"),
        (MERGE, compare(85, replace(APART, merges=SAME.merges), {A: 4, DEV: 4}), "would replay 1 versions, not 0"),
        (MERGE, compare(92, SAME, {A: 4, DEV: 4}), "no order"),
    ],
)
def test_wrong_merges_and_comparisons(before: Operation, after: Operation, words: str) -> None:
    operations = [one for one in FORWARDED.operations if one is not before or one is MERGE]
    problems = check(replace(FORWARDED, operations=[*operations, after]))
    assert any(words in problem for problem in problems), problems


IN_1, IN_2, GROUP = frozenset({"30/m=1/g/a.parquet"}), frozenset({"40/m=2/g/a.parquet"}), frozenset({"m=1/g/"})


@pytest.mark.parametrize(
    ("first", "second", "right"),
    [
        (Write(IN_1), Write(IN_2, saw=frozenset({"m=2/"})), True),
        (Write(IN_1), Write(IN_2, saw=frozenset({"m=1/"})), False),
        (Write(IN_1), Write(IN_2, saw=GROUP), False),
        (Write(IN_1), Write(IN_2, saw=frozenset({"m=1/h/"})), True),
        (Write(IN_1, service=True), Write(IN_2, saw=GROUP), True),
        (Write(clears=frozenset({"m=1/"})), Write(IN_2, saw=GROUP), False),
        (Write(clears=frozenset({"m=1/"})), Write(IN_2), True),
        (Write(clears=frozenset({"m=2/"})), Write(IN_2), False),  # does it belong to the new content?
        (Write(IN_1), Write(clears=ALL, saw=ALL), False),
    ],
)
def test_what_a_writer_has_to_have_seen(first: Write, second: Write, right: bool) -> None:
    """Commits on its own branch, and on the branch that it is merged into."""
    one = Operation("one", 30, 31, writes={A: replace(first, instant=30, version=2, read=1)})
    two = Operation("two", 40, 41, writes={A: replace(second, instant=40, version=3, read=1)})
    start = write(10, 11, {A: 1})
    assert (check(History([start, one, two], {A: listed(10, 30, 40)})) == []) is right
    two = replace(two, writes={DEV: replace(second, instant=40, version=2, read=1)})
    merge = Operation("merge", 80, 81, writes={A: Write(merges="dev", version=3, replayed=1)})
    operations = [start, replace(CREATE, began_ns=20, ended_ns=21), one, two, merge]
    versions = {A: [*listed(10, 30), Version(3, 80, merged=("dev", 1, 2))], DEV: listed(40, first=2)}
    assert (check(History(operations, versions, {DEV: (A, 1)})) == []) is right


def test_merges_and_restores_of_unknown_outcome() -> None:
    operations = [replace(one, outcome="unknown") if one in (MERGE, RESTORE) else one for one in BRANCHED.operations]
    operations = [
        replace(one, writes={at: replace(write, version=0, replayed=None) for at, write in one.writes.items()})
        if one.outcome == "unknown"
        else one
        for one in operations
    ]
    assert check(replace(BRANCHED, operations=operations)) == []
    without = [one for one in operations if one.what != "merge"]
    assert check(replace(BRANCHED, operations=without)) == ["nobody made version 4 of a@main"]


# -- deltas, columns, old versions -------------------------------------------------------------------------------------


def test_a_delta_keeps_its_base() -> None:
    base, delta, other = "10/m=1/g/a.parquet", "30/m=1/g/delta.parquet", "40/m=1/h/a.parquet"
    first = Operation("first", 10, 11, writes={A: Write(frozenset({base}), instant=10, version=1)})
    upsert = Operation("upsert", 30, 31, writes={A: Write(frozenset({delta}), instant=30, version=2)})
    gone, new = frozenset({base}), frozenset({"40/m=1/g/a.parquet"})
    compact = Operation("compact", 40, 41, writes={A: Write(new, gone, instant=40, version=3)})
    cluster = Operation("cluster", 40, 41, writes={A: Write(frozenset({other}), gone, instant=40, version=3)})
    versions = {A: listed(10, 30, 40)}
    assert check(History([first, upsert, compact], versions)) == []
    problems = check(History([first, upsert, cluster], versions))
    assert problems == ["cluster (version 3 of a@main) leaves deltas of m=1/g without a base"]


X, XY = frozenset({"x"}), frozenset({"x", "y"})
ADD_X = Operation("add x", 20, 21, writes={A: Write(column="x")})
ADD_Y = Operation("add y", 60, 61, writes={A: Write(column="y")})
ALTERED = History(
    [write(10, 11, {A: 1}), ADD_X, write(30, 31, {A: 3}), replace(CREATE, began_ns=40, ended_ns=41),
     write(50, 51, {DEV: 4}), ADD_Y, write(70, 71, {DEV: 5})],
    {
        A: [Version(1, 10), Version(2, 20, columns=X), Version(3, 30, columns=X), Version(4, 60, columns=XY)],
        DEV: [Version(4, 50, columns=X), Version(5, 70, columns=XY)],
    },
    {DEV: (A, 3)},
)  # fmt: skip


def test_columns() -> None:
    reads = [
        Operation("read", 12, 13, reads={A: 1}, columns={A: frozenset()}),
        Operation("read", 55, 56, reads={A: 3, DEV: 4}, columns={A: X, DEV: X}),
        Operation("read", 75, 76, reads={A: 4, DEV: 5}, columns={A: XY, DEV: XY}),
    ]
    assert check(replace(ALTERED, operations=[*ALTERED.operations, *reads])) == []


@pytest.mark.parametrize(
    ("more", "versions", "words"),
    [
        ([Operation("read", 75, 76, reads={A: 3}, columns={A: XY})], {}, "read version 3 of a@main with x, y, not x"),
        (
            [],
            {A: [*ALTERED.versions[A][:2], Version(3, 30, columns=XY), Version(4, 60, columns=XY)]},
            "both are version 3",
        ),
        ([], {DEV: [Version(4, 50), Version(5, 70, columns=XY)]}, "no order"),  # it had not seen a change before it
        ([], {DEV: [Version(4, 50, columns=XY), Version(5, 70, columns=XY)]}, "no order"),  # one that came later
        (
            [write(80, 81, {A: 5})],
            {A: [*ALTERED.versions[A], Version(5, 80, columns=X)]},
            "version 5 of a@main has columns x, not x, y",
        ),
        ([], {A: ALTERED.versions[A][:3]}, "add y was told version 0 of a@main: it is lost"),
    ],
)
def test_wrong_columns(more: list[Operation], versions: dict[Place, list[Version]], words: str) -> None:
    history = replace(ALTERED, operations=[*ALTERED.operations, *more], versions={**ALTERED.versions, **versions})
    problems = check(history)
    assert any(words in problem for problem in problems), problems


FIVE = [write(10 * number, 10 * number + 5, {A: number}) for number in range(1, 6)]
TAG = Operation("tag", 52, 53, keeps=(A, 2))
CLEAN = Operation("clean", 60, 65, cleans=Clean(A, retains=2, earliest=4, spared=frozenset({2})))


def look(began: int, version: int, outcome: Outcome = "ok") -> Operation:
    files = frozenset(str(10 * number) for number in range(1, version + 1))
    return Operation(f"look at {version}", began, began + 1, outcome, contents={A: files}, looks=(A, version))


@pytest.mark.parametrize(
    ("operations", "words"),
    [
        ([TAG, CLEAN, look(70, 1, "refused"), look(70, 2), look(70, 3, "refused"), look(70, 4)], ""),
        ([TAG, CLEAN, look(62, 1), look(62, 1, "refused")], ""),  # meanwhile
        ([TAG, replace(CLEAN, outcome="unknown"), look(70, 1), look(80, 3, "refused")], ""),
        ([TAG, CLEAN, look(70, 1)], "found version 1 of a@main, which clean had ended"),
        ([TAG, CLEAN, look(70, 2, "refused")], "did not find version 2 of a@main"),
        ([TAG, CLEAN, look(70, 4, "refused")], "did not find version 4"),
        ([TAG, CLEAN, look(55, 1, "refused")], "did not find version 1"),  # before it
        ([TAG, replace(CLEAN, outcome="unknown"), look(80, 2, "refused")], "did not find version 2"),  # kept
        ([TAG, replace(CLEAN, cleans=Clean(A, 2, 5))], "left fewer than 2 versions"),
        ([replace(CLEAN, cleans=Clean(A, 2, 4)), replace(TAG, began_ns=70, ended_ns=71)], "tag found version 2"),
        ([replace(look(58, 3), contents={A: frozenset({"10"})})], "saw version 3 of a@main without 20, 30"),
    ],
)
def test_old_versions_end(operations: list[Operation], words: str) -> None:
    problems = check(History([*FIVE, *operations], {A: listed(10, 20, 30, 40, 50)}))
    assert any(words in problem for problem in problems) if words else problems == [], problems


def test_what_is_there_in_the_end() -> None:
    history = History([*FIVE, TAG, CLEAN], {A: listed(10, 20, 30, 40, 50)}, gone=frozenset({(A, 1), (A, 3)}))
    assert check(history) == []
    assert any("did not find version 2" in one for one in check(replace(history, gone=frozenset({(A, 2)}))))
    kept = {(A, 1): frozenset({"10"})}
    assert any("which clean had ended" in one for one in check(replace(history, kept=kept)))
    lost = {(A, 5): frozenset({"40"})}
    assert check(replace(history, lost=lost)) == ["in the end version 5 of a@main has no 40 on disk"]


def test_a_clean_of_a_young_branch_ends_nothing() -> None:
    """Versions before its fork are not its own."""
    clean = Operation("clean", 90, 91, cleans=Clean(DEV, retains=2, earliest=3))
    assert check(replace(BRANCHED, operations=[*BRANCHED.operations, clean])) == []
    too_much = replace(clean, cleans=Clean(DEV, retains=2, earliest=4))
    assert "left fewer than 2 versions" in check(replace(BRANCHED, operations=[*BRANCHED.operations, too_much]))[0]


@pytest.mark.parametrize("quiet", [True, False])
def test_what_changes_no_rows_may_come_between_a_read_and_an_overwrite(quiet: bool) -> None:
    compact = write(30, 40, {A: 2}, removed=frozenset({"10"}), service=quiet)
    over = Operation("over", 35, 50, writes={A: Write(clears=ALL, read=1, saw=ALL, instant=31, version=3)})
    problems = check(History([BOTH, compact, over], {A: listed(10, 30, 31), B: listed(10)}))
    assert (problems == []) is quiet, problems
    read = Operation("read", 45, 50, reads={A: 1})
    assert check(History([BOTH, compact, read], TWO)) != [], "a reader sees the version"
