"""What a call means that does not say which statement it ends."""

from __future__ import annotations

import itertools
import random

import pytest

from lakemark_server.doors.decisions import (
    CallSituation,
    CompleteDirectory,
    calls_of,
    decide,
    given_up,
)
from lakemark_server.doors.directories import GivenDirectory

_numbers = itertools.count()


def complete(*, emptied: bool = False, marked: bool = True) -> CompleteDirectory:
    return CompleteDirectory(GivenDirectory("a" * 24, f"1-0-0-{next(_numbers):016x}"), emptied, marked)


def outcome(own: int = 0, elsewhere: int = 0, owed: int = 0, *, doubtful: bool = False) -> tuple[int, int, bool]:
    """How many are published and retired, and whether the call is refused."""
    situation = CallSituation([complete() for _ in range(own)], [complete() for _ in range(elsewhere)], owed, doubtful)
    decided = decide(situation, replaces=False, way="t__overwrite")
    return len(decided.publish), len(decided.retire), bool(decided.refusal)


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        ((1, 0, 0), (1, 0, False)),
        ((3, 0, 0), (3, 0, False)),
        ((0, 0, 0), (0, 0, True)),
        ((0, 0, 1), (0, 0, False)),
        ((2, 0, 1), (2, 0, False)),
        ((0, 1, 0), (1, 0, False)),  # it can be no other
        ((0, 2, 0), (0, 2, True)),
        ((1, 1, 0), (0, 2, True)),
        ((0, 1, 1), (0, 1, True)),
    ],
)
def test_cells(situation: tuple[int, int, int], expected: tuple[int, int, bool]) -> None:
    assert outcome(*situation) == expected


def test_in_doubt_everything_is_given_up() -> None:
    for own, elsewhere, owed in itertools.product(range(3), repeat=3):
        assert outcome(own, elsewhere, owed, doubtful=True) == (0, own + elsewhere, True)


@pytest.mark.parametrize(
    ("own", "elsewhere", "owed"), [one for one in itertools.product(range(3), repeat=3) if one != (0, 0, 0)]
)
def test_beside_one_that_is_late_nothing_is_taken_for_the_rows_of_a_call(own: int, elsewhere: int, owed: int) -> None:
    """The call may be that of the late one: it would be told that its rows are there."""
    late = complete()
    others = [complete() for _ in range(own)], [complete() for _ in range(elsewhere)]
    decided = decide(CallSituation(*others, owed, late=[late]), replaces=False, way="")
    assert decided.publish == ()
    assert set(decided.retire) == {one.directory for one in (late, *others[0], *others[1])}
    assert "cannot be told" in decided.refusal


def test_what_is_late_is_never_published() -> None:
    late = complete()
    alone = decide(CallSituation([], [], 0, late=[late]), replaces=False, way="")
    assert (alone.publish, alone.retire) == ((), (late.directory,))
    assert "repeat the statement" in alone.refusal


def test_one_call_and_one_directory_belong_together() -> None:
    one, other = complete(), complete()
    assert CallSituation([one], [], 0).certain
    assert CallSituation([], [], 0, late=[one]).certain
    for doubt in (
        CallSituation([one], [other], 0),
        CallSituation([one], [], 0, late=[other]),
        CallSituation([one], [], 1),
        CallSituation([one], [], 0, doubtful=True),
        CallSituation([], [one], 0, unfinished=True),
    ):
        assert not doubt.certain


def test_one_without_success_is_not_taken_from_elsewhere() -> None:
    left = complete(emptied=True, marked=False)
    decided = decide(CallSituation([], [left], 0), replaces=True, way="")
    assert (decided.publish, decided.retire) == ((), (left.directory,))
    assert decided.refusal


def test_files_of_its_own_keep_a_call_from_what_is_elsewhere() -> None:
    other = complete()
    decided = decide(CallSituation([], [other], 0, unfinished=True), replaces=False, way="")
    assert decided.retire == (other.directory,)
    assert decided.refusal


def test_an_overwrite_goes_through_its_own_door() -> None:
    static = CallSituation([complete(emptied=True)], [], 0)
    assert "use t__overwrite" in decide(static, replaces=False, way="t__overwrite").refusal
    assert len(decide(static, replaces=True, way="").publish) == 1


def test_one_without_success_is_taken_only_alone() -> None:
    left = complete(emptied=True, marked=False)
    assert decide(CallSituation([left], [], 0), replaces=True, way="").publish == (left.directory,)
    for others in (CallSituation([left, complete()], [], 0), CallSituation([left], [], 1)):
        refused = decide(others, replaces=True, way="")
        assert refused.refusal
        assert left.directory in refused.retire


def test_what_is_given_up_together_says_so() -> None:
    one, two = complete().directory, complete().directory
    assert given_up([one], "why").refusal == "why"
    assert "2 statements" in given_up([one, two], "why").refusal


def test_calls_of_a_statement() -> None:
    assert [calls_of(partitioned=one, files=files) for one in (False, True) for files in (0, 3)] == [1, 1, 1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_statements_of_one_session_in_any_order(seed: int) -> None:
    """Statements complete and call in any order: each call is answered after its own rows are published, and all
    calls are answered."""
    chance = random.Random(seed)
    waiting, running, published, owed = list[CompleteDirectory](), 20, set[GivenDirectory](), 0
    done: list[CompleteDirectory] = []  # their calls are still to come
    while running or done:
        if running and (not done or chance.random() < 0.6):
            running -= 1
            waiting.append(complete())
            done.append(waiting[-1])
            continue
        caller = done.pop(chance.randrange(len(done)))
        decided = decide(CallSituation(waiting, [], owed), replaces=False, way="")
        assert not decided.refusal
        published |= set(decided.publish)
        waiting = [one for one in waiting if one.directory not in published]
        owed += len(decided.publish) - 1
        assert owed >= 0
        assert caller.directory in published
    assert (waiting, owed) == ([], 0)
