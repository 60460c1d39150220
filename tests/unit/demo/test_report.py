"""The demo's report: one failed check fails the demo, and so does a demo without checks."""

from __future__ import annotations

import io

from rich.console import Console

from lakemark.demo.report import Report


def _report() -> tuple[Report, io.StringIO]:
    out = io.StringIO()
    return Report(Console(file=out, width=100)), out


def test_a_demo_without_checks_has_not_passed() -> None:
    assert _report()[0].passed is False


def test_one_difference_fails_the_demo_and_is_shown_with_what_was_expected() -> None:
    report, out = _report()
    report.chapter("first")
    report.check("a count", 3, 3)
    assert report.passed
    report.check("another [count]", 4, 5)
    assert not report.passed
    report.summary()
    assert "another [count]" in out.getvalue()
    assert "(expected 5)" in out.getvalue()
    assert "1 of 2 checks failed" in out.getvalue()


def test_long_values_are_compared_whole() -> None:
    report, _ = _report()
    report.check("lists", list(range(100)), [*range(99), 0])
    assert not report.passed


def test_commands_are_not_broken_into_lines() -> None:
    report, out = _report()
    line = "lakemark plan t --where '" + "x = 1 AND " * 30 + "y [1]'"
    report.commands([line])
    assert out.getvalue() == f"  {line}\n"


def test_steps_tell_their_text_once_they_are_done() -> None:
    report, out = _report()
    with report.steps("three [steps]", 3) as done:
        for _ in range(3):
            done()
        assert out.getvalue() == ""
    assert "three [steps] (0.0 s)" in out.getvalue()


def test_steps_show_a_bar_on_terminals() -> None:
    out = io.StringIO()
    report = Report(Console(file=out, width=100, force_terminal=True))
    with report.steps("three steps", 3) as done:
        for _ in range(3):
            done()
    assert "100%" in out.getvalue()
