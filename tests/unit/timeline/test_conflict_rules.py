"""The conflict rules cell by cell, with the reason for each (docs/conflicts.md says the same to users)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_server.catalog.lake import POLICIES
from lakemark_server.timeline.conflicts.changes import Change, Operation
from lakemark_server.timeline.conflicts.group_ids import hash_of
from lakemark_server.timeline.conflicts.rules import (
    NAMES_IN_DETAILS_MAX,
    NAMES_IN_MESSAGE_MAX,
    RULES,
    Collision,
    Verdict,
    find_collision,
    named_partitions,
)
from lakemark_server.timeline.publication.rivals import gives_way

A, U, D = t.APPEND, t.UPSERT, t.DELETE
P, Q, W = t.OVERWRITE_PARTITIONS, t.OVERWRITE_PREDICATE, t.OVERWRITE_TABLE
C, K, R = t.COMPACT, t.CLUSTER, t.RESTORE_VERSION
CLEAN, SCHEMA, BUCKETS = t.CLEAN_FILES, t.ALTER_SCHEMA, t.ALTER_BUCKETS
QUIET = {CLEAN, SCHEMA, BUCKETS}
WRITES = (A, U, D, P, Q, W)
ALL = (*WRITES, C, K, R, CLEAN, SCHEMA, BUCKETS)

NO, YES = Verdict.NEVER, Verdict.ALWAYS
PARTITION, GROUP, FILE, COLUMN = (
    Verdict.SAME_PARTITION,
    Verdict.SAME_GROUP,
    Verdict.SAME_FILE,
    Verdict.SAME_COLUMN,
)

PAIRS = list(itertools.product(ALL, ALL))
EVERY = ("table", "partition", "file_group", "file", "column", "row")
SHARED = EVERY[1:]  # several writers at a time
FINER = EVERY[2:]  # that tell changes of rows apart more finely than by partition
BY_NAME = ("file_group", "column", "row")

TABLE: list[tuple[tuple[str, ...], tuple[Operation, ...], tuple[Operation, ...], Verdict, str]] = [
    # policies, mine, theirs, verdict, why
    (("table",), WRITES, WRITES, YES, "one writer at a time"),
    # mine appends
    (SHARED, (A,), (A, U, D), NO, "an append has read nothing: it may count as later than anything"),
    (SHARED, (A,), (P,), PARTITION, "whether my rows belong to the new content of the partition is not known"),
    (("partition",), (A,), (Q,), PARTITION, "likewise, for what the predicate selects"),
    (FINER, (A,), (Q,), NO, "an overwrite by predicate replaces files, as a delete does: mine was not among them"),
    (SHARED, (A,), (W,), YES, "whether my rows belong to the new content of the table is not known"),
    # mine changes rows
    (("partition",), (U, D), (A,), PARTITION, "what was appended may be what I change, and I have not read it"),
    (FINER, (U, D), (A,), NO, "an append is blind, so it may count as later than mine"),
    (("partition",), (U, D), (U, D), PARTITION, "I would write over changes that I have not read"),
    (("file_group",), (U, D), (U, D), GROUP, "likewise, if they lie in the same file group"),
    (("file",), (U, D), (U, D), FILE, "likewise, if they lie on the same data file"),
    (("column",), (U, D), (U, D), COLUMN, "likewise, if they are of the same columns; others are merged"),
    (("row",), (U, D), (U, D), NO, "rows are merged by their ordering column, whatever the order of the versions"),
    (SHARED, (U, D), (P,), PARTITION, "the rows that I change are gone"),
    (("partition",), (U, D), (Q,), PARTITION, "the rows that I change may be gone"),
    (BY_NAME, (U, D), (Q,), GROUP, "the file group that I change was rewritten; its rows may be gone"),
    (("file",), (U, D), (Q,), FILE, "the file that I change was rewritten"),
    (SHARED, (U, D), (W,), YES, "the rows that I change are gone"),
    # mine overwrites
    (SHARED, (P,), (A, U, D, P, Q), PARTITION, "I would throw away rows that I have not read"),
    (("partition",), (Q,), (A, U, D), PARTITION, "what they wrote may be what my predicate selects"),
    (FINER, (Q,), (A,), NO, "an append is blind, so it may count as later than mine"),
    (BY_NAME, (Q,), (U, D), GROUP, "I would throw away changes of a group that I rewrite"),
    (("file",), (Q,), (U, D), FILE, "I would throw away changes of a file that I rewrite"),
    (SHARED, (Q,), (P, Q), PARTITION, "predicates are not compared: both may say what the same rows are now"),
    (SHARED, (P, Q), (W,), YES, "what I have read is gone"),
    (SHARED, (W,), WRITES, YES, "I would throw away rows that I have not read"),
    # a writer and table services
    (EVERY, WRITES, (C,), NO, "no row changed; my deltas lie on top, and files replaced by name are compared by name"),
    (EVERY, (A, P, W), (K,), NO, "no row changed, and I replace what is there when I am published, or nothing"),
    (EVERY, (U, D, Q), (K,), GROUP, "the file group on which my change lies is no more"),
    (EVERY, (C,), (A, U, D, Q), NO, "new deltas stay on top; files replaced by name are compared by name"),
    (EVERY, (K,), (A,), NO, "new files are not among those that I replace"),
    (EVERY, (K,), (U, D, Q), GROUP, "I would throw away changes of the group that I have not read"),
    (EVERY, (C, K), (P,), PARTITION, "I would bring back what they replaced"),
    (EVERY, (C, K), (W,), YES, "I would bring back what they replaced"),
    (EVERY, (C, K), (C, K), GROUP, "the second work on the same file group is for nothing"),
    # restores, and what never minds
    (EVERY, (*WRITES, C, K), (R,), YES, "what I have read is not there any more"),
    (EVERY, (R,), (*WRITES, C, K, R), YES, "of a branch that is merged: it would undo what it has not seen"),
    (EVERY, (CLEAN,), ALL, NO, "it takes only what no version that is kept has"),
    (EVERY, (SCHEMA,), ALL, NO, "files of older schemas can be read with every later one"),
    (EVERY, (BUCKETS,), ALL, NO, "files say themselves which bucket they are of, so that older ones stay right"),
    (EVERY, (*WRITES, C, K, R), (CLEAN, SCHEMA, BUCKETS), NO, "likewise"),
]
CELLS = [cell for policies, mine, theirs, *_ in TABLE for cell in itertools.product(policies, mine, theirs)]


def names(*texts: str) -> frozenset[int]:
    return frozenset(map(hash_of, texts))


def change(operation: Operation, *partitions: str, everything: bool = False, **more: Any) -> Change:
    fields = {"instant": 7, "version": 3} | more
    return Change(operation=operation, partitions=frozenset(partitions), all_partitions=everything, **fields)


# What both touch, from less to more: (mine, theirs) of the file group g and its files 1 and 2.
NEARNESS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "apart": (
        {"partitions": {"m=1"}, "groups": names("g"), "files": names("1"), "columns": {1}},
        {"partitions": {"m=2"}, "groups": names("g"), "files": names("1"), "columns": {1}},
    ),
    "partition": (
        {"partitions": {"m=1", "m=2"}, "groups": names("g"), "files": names("1"), "columns": {1}},
        {"partitions": {"m=2", "m=3"}, "groups": names("h"), "files": names("2"), "columns": {1}},
    ),
    "group": (
        {"partitions": {"m=2"}, "groups": names("g", "x"), "files": names("1"), "columns": {1, 2}},
        {"partitions": {"m=2"}, "groups": names("g", "y"), "files": names("2"), "columns": {3}},
    ),
    "file": (
        {"partitions": {"m=2"}, "groups": names("g"), "files": names("1", "3"), "columns": {1, 2}},
        {"partitions": {"m=2"}, "groups": names("g"), "files": names("1", "4"), "columns": {3}},
    ),
    "column": (
        {"partitions": {"m=2"}, "groups": names("g"), "files": names("1"), "columns": {1, 2}},
        {"partitions": {"m=2"}, "groups": names("g"), "files": names("2"), "columns": {2, 3}},
    ),
}
COLLIDES: dict[Verdict, set[str]] = {
    NO: set(),
    PARTITION: {"partition", "group", "file", "column"},
    GROUP: {"group", "file", "column"},
    FILE: {"file"},
    COLUMN: {"column"},
    YES: {"apart", "partition", "group", "file", "column"},
}


def near(name: str, mine: Operation, theirs: Operation) -> tuple[Change, Change]:
    of_mine, of_theirs = NEARNESS[name]

    def made(operation: Operation, fields: dict[str, Any]) -> Change:
        given: dict[str, Any] = {key: frozenset(value) for key, value in fields.items()}
        if operation in (W, R):  # as it is read from their records
            given |= {"partitions": frozenset(), "all_partitions": True}
        return Change(instant=7, version=3, operation=operation, **given)

    return made(mine, of_mine), made(theirs, of_theirs)


# -- cells -------------------------------------------------------------------------------------------------------------


def test_every_cell_is_here_once() -> None:
    assert set(RULES) == set(POLICIES) == set(EVERY)
    assert sorted(CELLS) == sorted(itertools.product(EVERY, ALL, ALL))
    assert {(policy, *pair) for policy, rules in RULES.items() for pair in rules} == set(CELLS)


def test_no_operation_is_forgotten() -> None:
    others = {"OPERATION_UNSPECIFIED", "MERGE_BRANCH", "MAKE_SAVEPOINT"}  # a merge is what it replays; a mark no change
    assert set(t.Operation.keys()) - others == set(map(t.Operation.Name, ALL))


@pytest.mark.parametrize(("policies", "mine", "theirs", "verdict", "why"), TABLE)
def test_cells(
    policies: tuple[str, ...], mine: tuple[Operation, ...], theirs: tuple[Operation, ...], verdict: Verdict, why: str
) -> None:
    for policy, one, other in itertools.product(policies, mine, theirs):
        cell = f"{policy}: {t.Operation.Name(one)} after {t.Operation.Name(other)}: {why}"
        assert RULES[policy][one, other] is verdict, cell
        collided = set()
        for name in NEARNESS:
            changes = near(name, one, other)
            if find_collision(policy, changes[0], [changes[1]]):
                collided.add(name)
        assert collided == COLLIDES[verdict], cell


@pytest.mark.parametrize("policy", EVERY)
def test_a_file_is_taken_out_once_and_a_group_begun_once(policy: str) -> None:
    """Above every cell: the second commit that removes a file by path is refused.

    The same holds for a file group that gets its first base file: with two of them a key would exist twice.
    """
    for (mine, theirs), what in itertools.product(PAIRS, ("removed", "begun")):
        fields: list[dict[str, Any]] = [{what: names(*one)} for one in ("ab", "bc", "c")]
        one, same, other = (
            change(operation, "m=1", **more) for operation, more in zip((mine, theirs, theirs), fields, strict=True)
        )
        assert find_collision(policy, one, [same]) is not None
        apart = find_collision(policy, one, [other])
        assert (apart is not None) == (RULES[policy][mine, theirs] in (PARTITION, YES))


def test_those_who_only_add_are_not_asked_for_removed_files() -> None:
    assert find_collision("row", change(U, "m=1"), [change(C, "m=1", removed=names("a"))]) is None
    assert find_collision("row", change(C, "m=1", removed=names("a")), [change(U, "m=1")]) is None


# -- boundaries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "theirs", "shared"),
    [
        (change(P, "m=1", "m=2"), change(P, "m=2"), {"m=2"}),
        (change(P, "m=1"), change(P, "m=2"), set()),
        (change(P, "m=1"), change(U, everything=True), {"m=1"}),
        (change(D, everything=True), change(P, "m=1"), {"m=1"}),
        (change(D, everything=True), change(Q, everything=True), None),
        (change(P), change(U, everything=True), set()),
    ],
)
def test_more_partitions_than_are_listed(mine: Change, theirs: Change, shared: set[str] | None) -> None:
    for one, other in ((mine, theirs), (theirs, mine)):
        found = find_collision("partition", one, [other])
        assert (found is None) == (shared == set())
        if found:
            assert found.partitions == shared
            assert found.details()["partitions"] == ("*" if shared is None else ",".join(shared))


G, H = names("g"), names("h")


@pytest.mark.parametrize(
    ("policy", "mine", "theirs", "collide"),
    [
        ("file_group", {"groups": G}, {"all_groups": True}, True),
        ("file_group", {"all_groups": True}, {"all_groups": True}, True),
        ("file_group", {"all_groups": True}, {}, False),
        ("file", {"groups": G, "files": G}, {"groups": G, "all_files": True}, True),
        ("file", {"groups": G, "all_files": True}, {"groups": G, "all_files": True}, True),
        ("file", {"groups": G, "all_files": True}, {"groups": H, "all_files": True}, False),
        ("file", {"groups": G, "files": G}, {"groups": H, "files": G}, False),
        ("file", {"all_groups": True, "files": G}, {"groups": G, "files": G}, True),
        ("file", {"all_groups": True, "files": G}, {"groups": G, "files": H}, False),
        ("column", {"groups": G}, {"groups": G}, True),
        ("column", {"groups": G, "columns": frozenset({1})}, {"groups": G}, True),
        ("column", {"groups": G}, {"groups": G, "columns": frozenset({1})}, True),
        ("column", {"groups": G, "columns": frozenset({1})}, {"groups": H, "columns": frozenset({1})}, False),
        ("column", {"all_groups": True, "columns": frozenset({1})}, {"groups": G, "columns": frozenset({2})}, False),
        ("row", {"removed": G}, {"all_removed": True}, True),
        ("row", {"all_removed": True}, {"all_removed": True}, True),
        ("row", {"all_removed": True}, {}, False),
        ("row", {"begun": G}, {"all_begun": True}, True),
        ("row", {"all_begun": True}, {"all_begun": True}, True),
        ("row", {"all_begun": True}, {"removed": G}, False),
        ("row", {"all_groups": True}, {"all_groups": True}, False),
    ],
)
def test_all_means_all_that_the_other_one_has(
    policy: str, mine: dict[str, Any], theirs: dict[str, Any], collide: bool
) -> None:
    one, other = change(U, "m=1", **mine), change(U, "m=1", **theirs)
    assert (find_collision(policy, one, [other]) is not None) == collide
    assert (find_collision(policy, other, [one]) is not None) == collide
    far = change(U, "m=2", **theirs)
    assert find_collision(policy, one, [far]) is None, "a name means nothing in another partition"


def test_groups_that_are_told_without_their_partitions_count_everywhere() -> None:
    """A work profile may name file groups alone."""
    told = change(U, groups=G, version=0)
    for other in (change(U, "m=1", groups=G), change(U, everything=True, groups=G), change(U, groups=G)):
        found = find_collision("file_group", other, [told])
        assert found is not None
        assert find_collision("file_group", told, [other]) is not None
    assert "in partitions not told yet" in collision("file_group", told, told).describe()
    assert find_collision("file_group", change(U, "m=1", groups=H), [told]) is None
    assert find_collision("partition", change(U, "m=1", groups=G), [told]) is None
    assert find_collision("row", change(C, "m=1", removed=G), [change(C, removed=G)]) is not None


# -- what is said ------------------------------------------------------------------------------------------------------


def collision(policy: str, mine: Change, theirs: Change) -> Collision:
    found = find_collision(policy, mine, [theirs])
    assert found is not None
    return found


def test_the_first_that_excludes_is_named_and_the_others_are_not_asked() -> None:
    def others() -> Iterator[Change]:
        yield change(A, "m=1", instant=1)
        yield change(P, "m=9", instant=2)
        yield change(P, "m=1", instant=3, owner="etl", version=12)
        raise AssertionError("asked for more than was needed")

    found = find_collision("partition", change(A, "m=1"), others())
    assert found is not None
    assert found.theirs.instant == 3
    assert found.details() == {
        "instant": "3",
        "version": "12",
        "operation": "OVERWRITE_PARTITIONS",
        "policy": "partition",
        "rule": "same partition",
        "partitions": "m=1",
        "file_groups": "",
        "columns": "",
    }
    assert found.describe() == (
        "instant 3 of etl committed version 12 (OVERWRITE_PARTITIONS) in partition m=1 (policy 'partition')"
    )


def test_groups_and_columns_are_named_as_far_as_their_names_are_known() -> None:
    known = {hash_of(name): name for name in ("g", "h")}
    mine = change(U, "m=1", groups=names("g", "h", "i"), columns=frozenset({3, 2, 1}), group_names=known)
    theirs = change(U, "m=1", groups=names("g", "i"), columns=frozenset({3, 2}))
    found = collision("column", mine, theirs)
    assert found.details() | {"instant": "", "version": ""} == {
        "instant": "",
        "version": "",
        "operation": "UPSERT",
        "policy": "column",
        "rule": "same columns of a file group",
        "partitions": "m=1",
        "file_groups": "g",
        "columns": "2,3",
    }
    assert "in column ids [2, 3] of file group g in partition m=1" in found.describe()
    assert "in columns 'fare', 'tip' of file group g" in found.describe({1: "id", 2: "fare", 3: "tip"})
    assert "in column 'tip', a column that was dropped (id 2) of file group g" in found.describe({3: "tip"})
    assert "in a column that was dropped (id 2), a column that was dropped (id 3) of" in found.describe({})
    whole = collision("column", change(U, "m=1", all_groups=True), change(U, "m=1", all_groups=True))
    assert (whole.details()["file_groups"], whole.details()["columns"]) == ("*", "*")
    assert "in whole rows of the same file groups" in whole.describe()
    groups = collision("file_group", mine, theirs)
    assert (groups.details()["rule"], groups.details()["columns"]) == ("same file group", "")
    assert "in file group g in partition m=1" in groups.describe()


def test_files_are_named_by_their_groups() -> None:
    known = {hash_of("g"): "g"}
    mine = change(U, "m=1", groups=G, files=G, group_names=known)
    found = collision("file", mine, change(U, "m=1", groups=G, files=G))
    assert (found.details()["rule"], found.details()["file_groups"]) == ("same file", "g")
    assert "in the same data files of file group g in partition m=1" in found.describe()
    one = change(C, "m=1", groups=G, removed=H, group_names=known)
    twice = collision("row", one, change(U, "m=1", groups=G, removed=H))
    assert (twice.details()["rule"], twice.details()["file_groups"]) == ("same removed file", "g")
    assert "replaced files of file group g, as this one does, in partition m=1" in twice.describe()
    begun = collision("row", change(U, "m=1", groups=G, begun=H), change(U, "m=1", groups=G, begun=H))
    assert begun.details()["rule"] == "same begun file group"
    assert "began the same file groups, as this one does, in partition m=1" in begun.describe()


@pytest.mark.parametrize(
    ("policy", "mine", "theirs", "words"),
    [
        ("table", A, A, "in the same table, which takes one writer at a time"),
        ("table", A, W, "changes the whole table"),
        ("row", W, A, "while this one changes the whole table"),
        ("row", A, R, "changes the whole table"),
    ],
)
def test_always(policy: str, mine: Operation, theirs: Operation, words: str) -> None:
    one, other = near("partition", mine, theirs)
    found = collision(policy, one, other)
    assert words in found.describe()
    assert found.details()["rule"] == "always"


def test_a_live_writer_is_said_to_be_in_flight() -> None:
    found = collision("table", change(A), change(A, version=0))
    assert "in flight" in found.describe()
    assert found.details()["version"] == "0"


def test_names_in_messages_and_details_are_few() -> None:
    assert named_partitions([""]) == "the table, which has no partitions"
    assert named_partitions(["m=1"]) == "partition m=1"
    months = [f"m={number:03}" for number in range(NAMES_IN_MESSAGE_MAX + 3)]
    assert named_partitions(months) == f"partitions {', '.join(months[:NAMES_IN_MESSAGE_MAX])} and 3 more"
    many = [f"n{number:03}" for number in range(NAMES_IN_DETAILS_MAX + 7)]
    wide = change(U, *many, groups=names(*many), group_names={hash_of(name): name for name in many})
    found = collision("file_group", wide, wide)
    details = found.details()
    for kind in ("partitions", "file_groups"):
        assert details[kind] == ",".join(many[:NAMES_IN_DETAILS_MAX])
    assert f"file groups {', '.join(many[:NAMES_IN_MESSAGE_MAX])} and {len(many) - NAMES_IN_MESSAGE_MAX} more" in (
        found.describe()
    )


# -- who gives way -----------------------------------------------------------------------------------------------------


def test_only_a_writer_and_a_clustering_give_way() -> None:
    for mine, theirs in itertools.product(ALL, ALL):
        assert gives_way(mine, theirs, "writer") == (mine == K and theirs in WRITES)
        assert gives_way(mine, theirs, "clustering") == (mine in WRITES and theirs == K)


# -- the page that users read ------------------------------------------------------------------------------------------

HEADINGS = {
    "append": A, "upsert": U, "delete": D, "overwr. partitions": P, "overwr. predicate": Q, "overwr. table": W,
    "overwrite partitions": P, "overwrite by predicate": Q, "overwrite table": W, "compact": C, "cluster": K,
    "restore": R, "restore (in a branch)": R,
}  # fmt: skip
CODES = {".": NO, "p": PARTITION, "g": GROUP, "f": FILE, "c": COLUMN, "!": YES}


def tables_of_the_page(title: str) -> Iterator[list[list[str]]]:
    """The tables below a heading, as lists of rows without the separator line."""
    page = (Path(__file__).parents[3] / "docs" / "conflicts.md").read_text()
    part = page.partition(f"### {title}\n")[2].partition("\n#")[0]
    for block in part.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        if lines:
            cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
            yield [cells[0], *cells[2:]]


def cells_of(table: list[list[str]]) -> Iterator[tuple[Operation, Operation, str]]:
    """(mine, theirs, code) of one table. A line may stand for several operations."""
    head = [HEADINGS[name] for name in table[0][1:]]
    for name, *cells in table[1:]:
        for one in name.split(", "):
            for theirs, cell in zip(head, cells, strict=True):
                yield HEADINGS[one], theirs, cell.strip("*").split()[0].strip("*")


def test_the_page_has_the_rules() -> None:
    (by_partition,) = tables_of_the_page("`partition`")
    told = {(mine, theirs): CODES[code] for mine, theirs, code in cells_of(by_partition)}
    assert told == {cell: verdict for cell, verdict in RULES["partition"].items() if not {*cell} & QUIET}
    assert told | dict.fromkeys(itertools.product(WRITES, WRITES), YES) == {
        cell: verdict for cell, verdict in RULES["table"].items() if cell in told
    }
    finer, letters = tables_of_the_page("`file_group`, `file`, `column`, `row`")
    for column, policy in enumerate(FINER, start=1):
        codes = CODES | {line[0][2]: CODES[line[column].split()[0]] for line in letters[1:]}
        changed = {(mine, theirs): codes[code] for mine, theirs, code in cells_of(finer)}
        assert told | changed == {cell: verdict for cell, verdict in RULES[policy].items() if cell in told}
