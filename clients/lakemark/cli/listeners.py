"""``lakemark listeners``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from lakemark.cli.context import invocation
from lakemark.cli.output import counted, show_done, show_fields, show_json, show_rows, time_text
from lakemark.client.listeners import Difference, Listener

app = typer.Typer(help="Listeners: outside Hive Metastores that follow a catalog.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="LISTENER")]
Catalog = Annotated[str, typer.Option(help="the catalog; default: hive")]


@app.command()
def create(
    context: typer.Context,
    name: Name,
    uri: Annotated[str, typer.Argument(metavar="URI", help="address of the outside Metastore: thrift://host:9083")],
    patterns: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATTERN …]", help="what to mirror: sales, sales.orders_*, *.t; default: everything"),
    ] = None,
    compare_interval: Annotated[
        float, typer.Option(help="seconds between two comparisons of everything; 0: an hour", min=0)
    ] = 0,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="take over what an earlier listener of this name made there")
    ] = False,
    paused: Annotated[bool, typer.Option("--paused", help="mirror nothing until it is resumed")] = False,
    catalog: Catalog = "",
) -> None:
    """Creates a listener, which keeps databases and tables up to date in an outside Metastore."""
    call = invocation(context)
    with call.client() as client:
        made = client.listeners.create(
            name, uri, patterns or (), compare_interval_s=compare_interval, adopt=adopt, paused=paused, catalog=catalog
        )
    call.tell(made, f"listener {made.name}: {', '.join(made.patterns) or 'everything'} is kept in {made.uri}")


@app.command("list")
def list_listeners(context: typer.Context, catalog: Catalog = "") -> None:
    """Lists listeners with their lag."""
    call = invocation(context)
    with call.client() as client:
        listeners = client.listeners.list(catalog=catalog)
    if call.as_json:
        show_json(listeners)
        return
    rows = [
        [one.name, one.uri, one.condition, one.lag_events, round(one.lag_ms / 1_000, 1), one.repaired, one.last_error]
        for one in listeners
    ]
    show_rows(["listener", "outside", "condition", "lag", "lag s", "repaired", "last error"], rows, below=6)


@app.command()
def show(context: typer.Context, name: Name, catalog: Catalog = "") -> None:
    """Shows the lag and failures of a listener, and what stays different and why."""
    call = invocation(context)
    with call.client() as client:
        listener = client.listeners.get(name, catalog=catalog)
    if call.as_json:
        show_json(listener)
        return
    show_fields(_fields(listener))
    if listener.problems:
        _show_differences(listener.problems)


@app.command()
def compare(
    context: typer.Context,
    name: Name,
    limit: Annotated[
        int, typer.Option(help="largest number of differences to show; 0: the service decides", min=0)
    ] = 0,
    catalog: Catalog = "",
) -> None:
    """Compares both sides object by object and changes nothing. Exits with 1 if something differs."""
    call = invocation(context)
    with call.client() as client:
        result = client.listeners.compare(name, limit=limit, catalog=catalog)
    if call.as_json:
        show_json(result)
    else:
        if result.differences:
            _show_differences(result.differences)
        show_done(f"{counted(result.compared, 'object')} compared, {counted(result.different, 'difference')}")
    if result.different:
        raise typer.Exit(1)


@app.command()
def repair(
    context: typer.Context,
    name: Name,
    overwrite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OBJECT", help="overwrite what somebody changed by hand in this object; *: in all; may be repeated"
        ),
    ] = None,
    catalog: Catalog = "",
) -> None:
    """Asks the service to compare and repair everything in the background."""
    call = invocation(context)
    with call.client() as client:
        asked = client.listeners.repair(name, overwrite or (), catalog=catalog)
    _tell(context, asked, "is going to compare and repair everything")


@app.command()
def pause(context: typer.Context, name: Name, catalog: Catalog = "") -> None:
    """Pauses a listener until it is resumed."""
    call = invocation(context)
    with call.client() as client:
        changed = client.listeners.pause(name, catalog=catalog)
    _tell(context, changed, "is paused")


@app.command()
def resume(context: typer.Context, name: Name, catalog: Catalog = "") -> None:
    """Lets a paused listener go on where it was."""
    call = invocation(context)
    with call.client() as client:
        changed = client.listeners.resume(name, catalog=catalog)
    _tell(context, changed, "goes on")


@app.command()
def drop(
    context: typer.Context,
    name: Name,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="do nothing if it does not exist")] = False,
    catalog: Catalog = "",
) -> None:
    """Drops a listener. What it created in the outside Metastore stays there."""
    call = invocation(context)
    with call.client() as client:
        dropped = client.listeners.drop(name, if_exists=if_exists, catalog=catalog)
    call.tell({"dropped": dropped}, f"listener {name} is dropped" if dropped else f"there was no listener {name}")


def _tell(context: typer.Context, listener: Listener, what: str) -> None:
    invocation(context).tell(listener, f"listener {listener.name} {what}")


def _fields(listener: Listener) -> dict[str, object]:
    return {
        "listener": listener.name,
        "outside": listener.uri,
        "patterns": listener.patterns or "everything",
        "condition": listener.condition,
        "lag": f"{counted(listener.lag_events, 'event')}, {listener.lag_ms / 1_000:.1f} s",
        "offset": listener.offset,
        "repaired": listener.repaired,
        "compared": time_text(listener.compared_ms),
        "compared every": f"{listener.compare_interval_ms / 1_000:g} s",
        "calls": listener.calls,
        "failed attempts": listener.failed_attempts,
        "failing since": time_text(listener.failing_since_ms) if listener.failing_since_ms else "",
        "next attempt": time_text(listener.next_attempt_ms) if listener.next_attempt_ms else "",
        "last error": listener.last_error,
        "runner": listener.runner,
        "created by": listener.owner,
    }


def _show_differences(differences: Sequence[Difference]) -> None:
    rows = [[one.kind, one.name, one.state, one.reason] for one in differences]
    show_rows(["kind", "object", "state", "why"], rows, below=3)
