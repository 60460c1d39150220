"""Listings for people, at usual terminal widths."""

from __future__ import annotations

from typing import Any

import pytest

from lakemark.cli.output import show_rows, time_text

HEADINGS = ["instant", "operation", "state", "version", "ended (UTC)", "files", "rows", "owner", "reason"]
OWNER = "somebody@a-machine-with-a-long-name.example.com"
TIME = time_text(1_795_132_800_123)
ROWS: list[list[Any]] = [
    [1_795_132_800_000, "append", "completed", 3, TIME, 2, 1_000, OWNER, ""],
    [1_795_132_800_001, "append", "rolled_back", None, "–", 1, None, OWNER, "the writer failed: a [red] reason " * 5],
]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")


def shown(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rows: Any = ROWS) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    show_rows(HEADINGS, rows, below=5)
    out = capsys.readouterr().out.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert all(len(line) <= width for line in out.splitlines())
    return out


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("width", [60, 80, 100, 120, 400])
def test_instants_and_times_are_whole_at_every_width(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shown(width, monkeypatch, capsys)
    for row in ROWS:
        (line,) = (line for line in out.splitlines() if str(row[0]) in line)
        assert all(part in line for part in row[1:3])
    assert TIME in out
    assert OWNER in out
    assert " ".join(out.split()).count("a [red] reason") == 5


@pytest.mark.usefixtures("terminal")
def test_what_does_not_fit_stands_below_with_its_heading(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(80, monkeypatch, capsys, ROWS[:1]).splitlines() == [
        "      instant  operation  state      version  ended (UTC)",
        f"1795132800000  append     completed        3  {TIME}",
        f"    files: 2; rows: 1000; owner: {OWNER}",
    ]
    long = [[ROWS[0][0], "overwrite_partitions", "rolled_back", *ROWS[0][3:]]]
    assert f"    ended (UTC): {TIME}; files: 2" in shown(80, monkeypatch, capsys, long)


def test_through_a_pipe_each_row_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(HEADINGS, ROWS, below=5)
    assert len([line for line in capsys.readouterr().out.splitlines() if "append" in line]) == len(ROWS)


@pytest.mark.usefixtures("terminal")
def test_numbers_of_any_listing_are_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    show_rows(["path", "rows", "made (UTC)"], [["p" * 100, 1_795_132_800_000, TIME]])
    out = capsys.readouterr().out
    assert "1795132800000" in out
    assert TIME in out
