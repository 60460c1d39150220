"""Which directories a call has to look into."""

from __future__ import annotations

from lakemark_server.doors.looks import RESOLUTION_NS, EarlierLooks

LONG_AGO, LATEST = 1_000_000_000, 1_000_000_000 + 2 * RESOLUTION_NS


def test_what_did_not_change_is_not_looked_at_again() -> None:
    looks = EarlierLooks()
    there: dict[str, int | None] = {"a": LONG_AGO, "b": LONG_AGO + 1, "latest": LATEST}
    assert looks.to_look_at(there) == ["a", "b", "latest"]
    looks.note_unended(["a", "b", "latest"], there)
    assert looks.to_look_at(there) == ["latest"], "it may change once more at that time"
    assert looks.to_look_at(there | {"b": LATEST}) == ["b", "latest"]


def test_where_no_times_are_known_all_are_looked_at() -> None:
    looks = EarlierLooks()
    there: dict[str, int | None] = {"a": None, "b": None}
    looks.note_unended(there, there)
    assert looks.to_look_at(there) == ["a", "b"]


def test_what_is_decided_is_left_alone_until_it_is_taken() -> None:
    looks = EarlierLooks()
    looks.decided |= {"a": 10, "b": 20}
    assert looks.to_look_at({"a": LATEST, "b": None, "c": LATEST}) == ["c"]
    assert looks.take_decided(15) == ["a"]
    assert looks.to_look_at({"a": LATEST, "b": LATEST}) == ["a"]
    assert looks.to_look_at({"c": LATEST}) == ["c"]
    assert looks.decided == {}, "nothing is remembered of what is not there any more"
