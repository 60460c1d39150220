"""Which connection goes for another."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark_web.connection_limits import ConnectionLimits, House


@dataclass(eq=False)
class Seated:
    host: str
    idle_since: float | None


def house(connections_max: int, peer_connections_max: int) -> House[Seated]:
    return House(ConnectionLimits(connections_max, peer_connections_max))


def test_while_there_is_room_nobody_goes() -> None:
    full = house(3, 2)
    seats = [Seated("a", 1.0), Seated("a", 2.0), Seated("b", 3.0)]
    assert [full.enter(one) for one in seats] == [None] * 3
    assert (len(full), full.of_host("a"), full.of_host("b")) == (3, 2, 1)


def test_an_address_that_has_its_share_loses_its_own_longest_idle_one() -> None:
    full = house(10, 2)
    older, oldest, newest = Seated("a", 2.0), Seated("a", 1.0), Seated("a", 3.0)
    full.enter(Seated("b", 0.0))
    full.enter(older)
    full.enter(oldest)
    assert full.enter(newest) is oldest
    assert full.of_host("a") == 2


def test_in_a_full_house_the_address_with_most_loses_one() -> None:
    full = house(3, 3)
    quiet, first, second = Seated("a", 0.0), Seated("b", 1.0), Seated("b", 2.0)
    for one in (quiet, second, first):
        full.enter(one)
    assert full.enter(Seated("c", 3.0)) is first
    assert (full.of_host("a"), full.of_host("b"), full.of_host("c")) == (1, 1, 1)


def test_what_is_being_answered_does_not_go() -> None:
    full = house(2, 2)
    busy, idle, late = Seated("a", None), Seated("b", 1.0), Seated("c", 2.0)
    full.enter(busy)
    full.enter(idle)
    assert full.enter(late) is idle
    late.idle_since = None
    refused = Seated("d", 3.0)
    assert full.enter(refused) is refused
    assert (len(full), full.of_host("d")) == (2, 0)


def test_what_has_left_counts_no_more_and_leaves_once() -> None:
    full = house(2, 1)
    one = Seated("a", 1.0)
    full.enter(one)
    full.leave(one)
    full.leave(one)
    assert (len(full), full.of_host("a")) == (0, 0)
    assert full.enter(Seated("a", 2.0)) is None
