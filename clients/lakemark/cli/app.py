"""The program: options that all commands share, the groups of commands, and the handling of errors."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from typer.main import get_command

from lakemark.cli import (
    backup,
    consumers,
    databases,
    events,
    files,
    health,
    listeners,
    migration,
    mounts,
    optimize,
    optimizer,
    process,
    quota,
    references,
    retention,
    schema,
    sinks,
    tables,
    timeline,
)
from lakemark.cli.context import SERVER_DEFAULT, Invocation
from lakemark_core.errors import LakemarkError

app = typer.Typer(
    name="lakemark",
    help="Lakemark: a Hive Metastore whose lake tables have commits and snapshots.\n\n"
    "'lakemark serve' starts a service, and most other commands ask one (--server). 'backup', 'restore' and 'verify' "
    "work on a store itself (--store).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(databases.app, name="databases")
app.add_typer(tables.app, name="tables")
app.add_typer(schema.app, name="schema")
app.add_typer(files.app, name="files")
app.add_typer(timeline.app, name="timeline")
app.add_typer(references.branch, name="branch")
app.add_typer(references.tag, name="tag")
app.add_typer(retention.app, name="savepoint")
app.command("clean")(retention.clean)
app.add_typer(quota.app, name="quota")
app.add_typer(events.app, name="events")
app.add_typer(consumers.app, name="consumers")
app.add_typer(sinks.app, name="sinks")
app.add_typer(listeners.app, name="listeners")
app.add_typer(mounts.app, name="mounts")
app.add_typer(optimize.app, name="optimize")
app.add_typer(optimizer.app, name="optimizer")
app.add_typer(backup.app, name="backup")
app.command("restore")(backup.restore)
app.command("import-hms")(migration.import_hms)
app.command("export-hms")(migration.export_hms)
app.command("plan")(files.plan)
app.command("health")(health.health)
app.command("serve")(process.serve)
app.command("demo")(process.demo)
app.command("verify")(process.verify)
app.command("password")(process.password)
app.command("version")(process.version)


@app.callback()
def options(
    context: typer.Context,
    server: Annotated[
        str,
        typer.Option(
            "--server",
            "-s",
            envvar="LAKEMARK_SERVER",
            help="address of the service, host:port; separate several services of one store by commas: a:9090,b:9090",
        ),
    ] = SERVER_DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="write one JSON document instead of text")] = False,
    timeout: Annotated[
        float, typer.Option(help="seconds that a request may take, with all of its retries", min=0.001)
    ] = 30.0,
) -> None:
    """The options of every command. They may stand before or after the command."""
    context.obj = Invocation(server, as_json=as_json, timeout_s=timeout)


def run(arguments: list[str]) -> int:
    """Runs a command line and returns its exit code.

    An error is one line on stderr, never a traceback; with ``--json`` it is a JSON document.
    """
    ordered = options_first(arguments)
    try:
        _built()(ordered)
    except LakemarkError as error:
        if "--json" in ordered[: ordered.index("--") if "--" in ordered else None]:
            sys.stderr.write(json.dumps(_told(error), ensure_ascii=False) + "\n")
            return error.exit_code
        Console(stderr=True, soft_wrap=True, highlight=False).print(
            f"error: {error.message}", style="red", markup=False
        )
        return error.exit_code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


@functools.cache
def _built() -> Callable[[list[str]], object]:
    """The whole tree of commands. To build it takes longer than most commands do: so once in a process."""
    return get_command(app)


def _told(error: LakemarkError) -> dict[str, object]:
    """The fields of an error for programs, as in docs/errors.md."""
    return {"code": error.code, "message": error.message, "outcome": error.outcome.value, "details": error.details}


def options_first(arguments: list[str]) -> list[str]:
    """The same command line with the options of all commands first, where every command accepts them."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments[:end])
    for word in words:
        if word == "--json" or word.startswith(("--server=", "--timeout=")):
            front.append(word)
        elif word in ("--server", "-s", "--timeout"):
            front += [word, *(value for value in (next(words, None),) if value is not None)]
        else:
            rest.append(word)
    return front + rest + arguments[end:]
