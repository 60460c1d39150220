"""``lakemark serve``, ``demo``, ``verify`` and ``version``, which ask no service."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from lakemark.cli.context import invocation
from lakemark.cli.output import counted, show_done, show_json, size_text
from lakemark_core.defaults import STORE_URL
from lakemark_core.errors import CorruptStore, FailedPrecondition, InvalidArgument

PROBLEMS_SHOWN_MAX: Final = 1_000


def serve(
    store: Annotated[
        str | None,
        typer.Option(help="URL of the store: sqlite:///file.db, postgresql://user@host/database or fdb:///fdb.cluster"),
    ] = None,
    warehouse: Annotated[str | None, typer.Option(help="directory or URI below which new databases are placed")] = None,
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    grpc_port: Annotated[int | None, typer.Option(help="port for gRPC; 0: any free port", min=0, max=65535)] = None,
    hms_port: Annotated[
        int | None, typer.Option(help="port for the Hive Metastore protocol; 0: any free port", min=0, max=65535)
    ] = None,
    hms_engine_port: Annotated[
        int | None,
        typer.Option(
            help="port of the same protocol for engines other than Spark; 0: any free port; default: none",
            min=0,
            max=65535,
        ),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="HTTP port for Prometheus; 0: any free port; default: none", min=0, max=65535)
    ] = None,
    optimizer: Annotated[
        bool | None,
        typer.Option("--optimizer/--no-optimizer", help="plan the work of 'lakemark optimizer run'"),
    ] = None,
    web_port: Annotated[
        int | None, typer.Option(help="HTTP port for the web page; 0: any free port; default: 9084", min=0, max=65535)
    ] = None,
    web: Annotated[bool | None, typer.Option("--web/--no-web", help="whether to serve the web page")] = None,
    log_format: Annotated[str | None, typer.Option(help="format of the log: console or json")] = None,
) -> None:
    """Runs the service until it is interrupted.

    Settings that are not given here come from the environment (LAKEMARK_STORE and so on) or have their defaults.
    docs/settings.md lists all of them.
    """
    try:
        from pydantic import ValidationError

        from lakemark_server import process
        from lakemark_server.settings import Settings
    except ImportError as error:
        raise missing("the service", "server", error) from error
    options: dict[str, Any] = {
        "store": store,
        "warehouse": warehouse,
        "host": host,
        "grpc_port": grpc_port,
        "hms_port": hms_port,
        "hms_engine_port": hms_engine_port,
        "metrics_port": metrics_port,
        "optimizer": optimizer,
        "web_port": web_port,
        "web_enabled": web,
        "log_format": log_format,
    }
    try:
        settings = Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise InvalidArgument(f"some settings are wrong: {wrong}") from error
    process.main(settings)


def demo(
    directory: Annotated[
        Path | None, typer.Option(help="directory to work in, whose files stay; default: a temporary directory")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="leave the service and its tables, and end with three commands to try")
    ] = False,
) -> None:
    """Shows what Lakemark does on real data: starts a service and plain Spark, and lists what it checked."""
    try:
        from lakemark.demo import main as demo_main
    except ImportError as error:
        raise missing("the demo", "server,spark,demo", error) from error
    raise typer.Exit(demo_main.run(directory, keep=keep))


def verify(
    context: typer.Context,
    store: Annotated[str, typer.Option(envvar="LAKEMARK_STORE", help="URL of the key-value store")] = STORE_URL,
    files: Annotated[
        bool,
        typer.Option(
            "--files", help="also check that the data files of the latest versions exist and have the right sizes"
        ),
    ] = False,
    sample: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="with --files, check only N files of each table, chosen at random; 0: all"
        ),
    ] = 0,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="with --files, also find files that belong to no version, writer or clean")
    ] = False,
) -> None:
    """Checks that a store is consistent; for SQLite also the file. The store may be in use."""
    try:
        from lakemark_server.backup import refuse_half_restored
        from lakemark_server.process import open_existing
        from lakemark_server.store import store_format
        from lakemark_server.verify import check_files
        from lakemark_server.verify import verify as check
    except ImportError as error:
        raise missing("the checker", "server", error) from error
    call = invocation(context)
    if (sample or orphans) and not files:
        raise InvalidArgument("--sample and --orphans need --files")
    opened = open_existing(store, read_only=True)
    try:
        refuse_half_restored(opened)
        store_format.require(opened)
        problems = opened.integrity_check() + check(opened)
        # The metadata that names the files must be correct first.
        checked = check_files(opened, sample=sample, orphans=orphans) if files and not problems else None
    finally:
        opened.close()
    if call.as_json:
        show_json({"problems": problems} | ({"files": checked} if checked else {}))
    raise_problems(
        problems,
        "invariants of the store do not hold; restore a backup, or report a defect",
        tell=not call.as_json,
    )
    if not call.as_json:
        show_done("every invariant of the store holds")
    if checked is None:
        return
    single = len(checked.problems) == 1
    which = "data file of the latest versions is" if single else "data files of the latest versions are"
    raise_problems(
        checked.problems,
        f"{which} missing or not as long as {'it' if single else 'they'} should be; bring back what a copy of the "
        "warehouse has, or restore the tables to "
        "versions whose files are there ('lakemark timeline restore')",
        tell=not call.as_json,
    )
    if not call.as_json:
        some = "all" if checked.checked == checked.files else f"{checked.checked} of"
        all_files = f"{some} {counted(checked.files, 'data file')} ({size_text(checked.bytes)})"
        show_done(f"{all_files} of {counted(checked.tables, 'lake table')} are there")
        if checked.orphans is not None:
            _show_orphans(checked.orphans, checked.orphan_bytes)


def _show_orphans(orphans: Sequence[str], size_bytes: int) -> None:
    for location in orphans[:PROBLEMS_SHOWN_MAX]:
        typer.echo(location)
    if len(orphans) > PROBLEMS_SHOWN_MAX:
        typer.echo(f"… and {len(orphans) - PROBLEMS_SHOWN_MAX} more; --json shows all of them")
    show_done(f"{counted(len(orphans), 'file')} ({size_text(size_bytes)}) that nobody has")


def password(
    context: typer.Context, name: Annotated[str, typer.Argument(help="name of the user, as clients send it")]
) -> None:
    """Asks for a password, and prints the line for the file of users (users_file) that lets the user log in.

    The password is read from a terminal without showing it, or is the first line of standard input.
    """
    try:
        from lakemark_server.access.passwords import user_line
    except ImportError as error:
        raise missing("users of the service", "server", error) from error
    if sys.stdin.isatty():
        given = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        given = sys.stdin.readline().rstrip("\n")
    line = user_line(name, given)
    if invocation(context).as_json:
        show_json({"line": line})
    else:
        typer.echo(line)


def version(context: typer.Context) -> None:
    """Shows the version of this program."""
    try:
        number = metadata.version("lakemark")
    except metadata.PackageNotFoundError:
        number = "unknown"
    if invocation(context).as_json:
        show_json({"version": number})
    else:
        typer.echo(f"lakemark {number}")


def raise_problems(problems: Sequence[str], what: str, *, tell: bool) -> None:
    """Raises CorruptStore if there are any problems. ``tell``: prints them before."""
    if tell:
        for problem in problems[:PROBLEMS_SHOWN_MAX]:
            typer.echo(problem)
        if len(problems) > PROBLEMS_SHOWN_MAX:
            typer.echo(f"… and {len(problems) - PROBLEMS_SHOWN_MAX} more; --json shows all of them")
    if problems:
        raise CorruptStore(f"{len(problems)} {what}")


def missing(what: str, extras: str, error: ImportError) -> FailedPrecondition:
    """The error for a package that an optional command needs."""
    return FailedPrecondition(
        f"{what} needs packages that are not installed ({error}): pip install 'lakemark[{extras}]'"
    )
