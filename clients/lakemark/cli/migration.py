"""``lakemark import-hms`` and ``export-hms``: everything of one Metastore is copied to another one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from lakemark.cli.context import invocation
from lakemark.cli.output import counted, show_done, show_json, show_rows
from lakemark.cli.process import missing

if TYPE_CHECKING:
    from lakemark_hms.migration import Progress, Summary

HMS_DEFAULT: Final = "thrift://127.0.0.1:9083"
TOLD_MAX: Final = 100
_WHATS: Final = ("equal", "made", "altered", "dropped", "different", "left")

Patterns = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATTERN …]", help="what to copy: sales, sales.orders_*, *.t; default: everything"),
]
CompareOnly = Annotated[bool, typer.Option("--compare", help="only compare every object, and change nothing")]
Drop = Annotated[
    bool, typer.Option("--drop", help="drop from the copy what the source does not have; files are never deleted")
]
Statistics = Annotated[bool, typer.Option("--statistics/--no-statistics", help="also copy statistics of columns")]
Grants = Annotated[bool, typer.Option("--grants/--no-grants", help="also copy roles and privileges")]
Verify = Annotated[bool, typer.Option("--verify/--no-verify", help="compare every object after the copy")]
Workers = Annotated[int, typer.Option(help="number of tables to copy at the same time", min=1, max=64)]
Journal = Annotated[
    Path | None,
    typer.Option(
        help="file that notes finished tables, so that a run that was stopped can go on after them", dir_okay=False
    ),
]


def import_hms(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="URI", help="address of the Metastore to copy: thrift://old:9083")],
    patterns: Patterns = None,
    to: Annotated[str, typer.Option(envvar="LAKEMARK_HMS", help="Metastore address of this service")] = HMS_DEFAULT,
    compare: CompareOnly = False,
    drop: Drop = False,
    statistics: Statistics = True,
    grants: Grants = True,
    verify: Verify = True,
    workers: Workers = 4,
    journal: Journal = None,
) -> None:
    """Copies a Hive Metastore into this service: databases, tables, partitions, statistics, functions, grants …

    No file is read, moved or deleted. Run it again to catch up. Exits with 1 if something is not the same.
    """
    _run(context, source, to, patterns, compare, drop, statistics, grants, verify, workers, journal)


def export_hms(
    context: typer.Context,
    to: Annotated[
        str, typer.Argument(metavar="URI", help="address of the Metastore that gets the copy: thrift://other:9083")
    ],
    patterns: Patterns = None,
    source: Annotated[
        str, typer.Option("--from", envvar="LAKEMARK_HMS", help="Metastore address of this service")
    ] = HMS_DEFAULT,
    compare: CompareOnly = False,
    drop: Drop = False,
    statistics: Statistics = True,
    grants: Grants = True,
    verify: Verify = True,
    workers: Workers = 4,
    journal: Journal = None,
) -> None:
    """Copies everything of this service except lake tables into a Hive Metastore: the way back."""
    _run(context, source, to, patterns, compare, drop, statistics, grants, verify, workers, journal)


def _run(
    context: typer.Context,
    source: str,
    to: str,
    patterns: Sequence[str] | None,
    compare: bool,
    drop: bool,
    statistics: bool,
    grants: bool,
    verify: bool,
    workers: int,
    journal: Path | None,
) -> None:
    try:
        from lakemark_hms.migration import Migration, Orders
    except ImportError as error:
        raise missing("the copy of a Metastore", "server", error) from error
    call = invocation(context)
    orders = Orders(patterns or (), drops=drop, statistics=statistics, grants=grants, workers=workers, journal=journal)
    console = Console(stderr=True)
    with Bar(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tables"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("looking", total=None)

        def look(progress: Progress) -> None:
            words = f"{progress.partitions_done:,} partitions"
            bar.update(task, total=progress.tables or None, completed=progress.tables_done, description=words)

        migration = Migration(source, to, orders, look)
        copied = None if compare else migration.copy()
        compared = migration.compare() if compare or verify else None
    wrong = compared.wrong if compared else copied.wrong if copied else 0
    if call.as_json:
        show_json({"copied": _plain(copied), "compared": _plain(compared), "wrong": wrong})
    else:
        if copied:
            _show(copied, "What was copied")
        if compared:
            _show(compared, "What was compared")
        _tell(compared or copied, wrong, source, to)
    if wrong:
        raise typer.Exit(1)


def _show(summary: Summary, title: str) -> None:
    whats = [what for what in _WHATS if any(counts[what] for counts in summary.counts.values())]
    rows = [[kind, *(counts[what] for what in whats)] for kind, counts in summary.counts.items()]
    show_rows(["kind", *whats], rows, title=title)
    if summary.resumed:
        show_done(f"{counted(summary.resumed, 'table')} had been done by the run before")


def _tell(summary: Summary | None, wrong: int, source: str, to: str) -> None:
    if not wrong or summary is None:
        show_done(f"{to} has all that {source} has")
        return
    rows = [[one.kind, one.name, one.count, one.what.value, one.reason] for one in summary.told[:TOLD_MAX]]
    show_rows(["kind", "name", "objects", "", "reason"], rows, below=4)
    show_done(f"{counted(wrong, 'object')} of {source} and {to} are not the same")


def _plain(summary: Summary | None) -> object:
    if summary is None:
        return None
    return {
        "counts": {kind: dict(counts) for kind, counts in summary.counts.items()},
        "told": [
            {"kind": one.kind, "name": one.name, "what": one.what.value, "reason": one.reason, "objects": one.count}
            for one in summary.told
        ],
        "resumed": summary.resumed,
    }
