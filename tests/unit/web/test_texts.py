"""Values and moments as people read and write them."""

from __future__ import annotations

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_server.snapshots.service import SnapshotReference
from lakemark_web import texts
from lakemark_web.pages import moments

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1 kB"), (1_234_567, "1.23 MB"), (999_600, "1 MB"), (505_937_920, "506 MB")],
)
def test_sizes(size: int, text: str) -> None:
    assert texts.size(size) == text


@pytest.mark.parametrize(
    ("before", "text"),
    [(0, "0 ms ago"), (1_500, "1 s ago"), (119_000, "119 s ago"), (7_200_000, "2 h ago"), (-5_000, "in 5 s")],
)
def test_times_before_now(before: int, text: str) -> None:
    assert texts.ago(NOW - before, NOW) == text
    assert texts.ago(0, NOW) == "never"


def test_times_out_of_the_calendar() -> None:
    assert (texts.time(1 << 62), texts.iso_time(1 << 62), texts.time(0)) == ("–", "", "–")


@pytest.mark.parametrize(
    ("given", "at"),
    [
        ({}, SnapshotReference()),
        ({"version": " 7 ", "branch": "dev"}, SnapshotReference(version=7, branch="dev")),
        ({"time": "2027-01-15T08:00"}, SnapshotReference(timestamp_ms=NOW)),
        ({"time": "2027-01-15T09:00+01:00"}, SnapshotReference(timestamp_ms=NOW)),
        ({"time": str(NOW)}, SnapshotReference(timestamp_ms=NOW)),
        ({"tag": "kept", "version": ""}, SnapshotReference(tag="kept")),
    ],
)
def test_moments(given: dict[str, str], at: SnapshotReference) -> None:
    assert moments.moment_of(given) == at
    if given:
        assert moments.words_of(at)
        assert moments.query_of(at)


@pytest.mark.parametrize(
    "given",
    [
        {"version": "-1"},
        {"version": "1" * 30},
        {"version": "1", "tag": "a"},
        {"tag": "a", "branch": "b"},
        {"time": "soon"},
        {"time": "9999-99-99"},
    ],
)
def test_moments_that_are_none(given: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        moments.moment_of(given)


def test_what_nobody_sees_is_shown() -> None:
    assert texts.visible("a\u202eb\u200bc\x00\x1b[0m\r\n\tö日本\u0645") == (
        "a‹U+202E›b‹U+200B›c‹U+0000›‹U+001B›[0m‹U+000D›\n\tö日本\u0645"
    )
