"""What the demo prints while it runs, and the table of checks at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

VALUE_CHARS_MAX = 60


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was expected, and what was found."""

    chapter: str
    what: str
    expected: str
    found: str
    passed: bool


class Report:
    """Prints chapters, steps and checks as they come. ``passed`` is whether every check did."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.checks: list[Check] = []
        self._chapter = ""

    @property
    def passed(self) -> bool:
        """Whether every check passed so far."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    def chapter(self, title: str) -> None:
        """Begins a chapter."""
        self._chapter = title
        self.console.rule(f"[bold]{escape(title)}", align="left")

    def say(self, text: str) -> None:
        """Prints a line of text."""
        self.console.print(f"  [dim]{escape(text)}[/dim]", highlight=False)

    def sql(self, text: str) -> None:
        """Prints a statement."""
        self.console.print(f"  [cyan]{escape(' '.join(text.split()))}[/cyan]", highlight=False, soft_wrap=True)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """A step that may take a while."""
        start = time.monotonic()
        with self.console.status(escape(text)):
            yield
        self._done(text, start)

    @contextmanager
    def steps(self, text: str, total: int) -> Iterator[Callable[[], object]]:
        """A step with a bar on terminals. What it yields is called after each of its ``total`` parts."""
        start = time.monotonic()
        shown = self.console.is_terminal
        with Progress(console=self.console, transient=True, disable=not shown) as bar:
            task = bar.add_task(f"  {escape(text)}", total=total)
            yield lambda: bar.advance(task)
        self._done(text, start)

    def commands(self, lines: Sequence[str]) -> None:
        """Prints commands as they can be copied: each in one line, however long."""
        for line in lines:
            self.console.print(f"  [cyan]{escape(line)}[/cyan]", highlight=False, soft_wrap=True)

    def _done(self, text: str, start: float) -> None:
        self.console.print(f"  {escape(text)} [dim]({time.monotonic() - start:.1f} s)[/dim]", highlight=False)

    def check(self, what: str, found: object, expected: object) -> None:
        """Records whether the two are equal, and shows it."""
        check = Check(self._chapter, what, _short(expected), _short(found), found == expected)
        self.checks.append(check)
        mark = "[green]✓[/green]" if check.passed else "[red]✗[/red]"
        line = f"  {mark} {escape(what)}: {escape(check.found)}"
        if not check.passed:
            line += f" [red](expected {escape(check.expected)})[/red]"
        self.console.print(line, highlight=False)

    def summary(self) -> None:
        """Prints the table of all checks."""
        table = Table(title="What was checked", title_justify="left")
        for name in ("", "check", "found"):
            table.add_column(name, overflow="fold")
        chapter = ""
        for check in self.checks:
            if check.chapter != chapter:
                chapter = check.chapter
                table.add_section()
                table.add_row("", f"[bold]{escape(chapter)}", "")
            value = escape(check.found)
            if check.passed:
                table.add_row("[green]✓[/green]", escape(check.what), value)
            else:
                table.add_row(
                    "[red]✗[/red]", escape(check.what), f"{value} [red](expected {escape(check.expected)})[/red]"
                )
        self.console.print(table)
        failed = sum(not check.passed for check in self.checks)
        if self.passed:
            self.console.print(f"[green]All {len(self.checks)} checks passed.[/green]")
        else:
            self.console.print(f"[red]{failed} of {len(self.checks)} checks failed.[/red]")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 1] + "…"
