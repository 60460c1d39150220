"""``lakemark consumers``."""

from __future__ import annotations

from typing import Annotated

import typer

from lakemark.cli.context import invocation
from lakemark.cli.events import Catalog, Epoch, Kinds, Patterns
from lakemark.cli.output import show_json, show_rows, time_text

app = typer.Typer(
    help="Consumers of events: places in the log that the service keeps. 'lakemark events follow --consumer' reads as "
    "one.",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(metavar="CONSUMER", help="name of the consumer")]


@app.command("list")
def list_consumers(context: typer.Context, catalog: Catalog = "") -> None:
    """Lists consumers with their places in the log, and who reads as them."""
    call = invocation(context)
    with call.client() as client:
        consumers = list(client.consumers.list(catalog))
    if call.as_json:
        show_json(consumers)
        return
    rows = [
        [
            consumer.name,
            consumer.offset,
            consumer.behind,
            time_text(consumer.moved_ms),
            consumer.member or None,
            " ".join((*consumer.patterns, *consumer.kinds)) or "all events",
            consumer.managed_by or consumer.owner,
        ]
        for consumer in consumers
    ]
    show_rows(["consumer", "offset", "behind", "moved (UTC)", "member", "events", "owner"], rows, below=5)


@app.command()
def create(
    context: typer.Context,
    name: Name,
    after: Annotated[
        int | None,
        typer.Option(
            min=0, help="offset after which to begin; 0: with the first event that is kept; default: from now on"
        ),
    ] = None,
    epoch: Epoch = None,
    only: Patterns = None,
    kind: Kinds = None,
    catalog: Catalog = "",
) -> None:
    """Creates a consumer."""
    call = invocation(context)
    with call.client() as client:
        made = client.consumers.create(name, after, epoch=epoch, patterns=only or (), kinds=kind or (), catalog=catalog)
    call.tell(made, f"consumer {made.name} begins behind event {made.offset}; the last one has {made.end}")


@app.command()
def drop(
    context: typer.Context,
    name: Name,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="do nothing if it does not exist")] = False,
    catalog: Catalog = "",
) -> None:
    """Drops a consumer. The service forgets its place in the log."""
    call = invocation(context)
    with call.client() as client:
        dropped = client.consumers.drop(name, if_exists=if_exists, catalog=catalog)
    call.tell({"dropped": dropped}, f"consumer {name} is dropped" if dropped else f"there is no consumer {name}")


@app.command()
def seek(
    context: typer.Context,
    name: Name,
    after: Annotated[
        int | None, typer.Option(min=0, help="offset after which to go on; 0: with the first event that is kept")
    ] = None,
    end: Annotated[bool, typer.Option("--end", help="go on after the last event")] = False,
    epoch: Epoch = None,
    catalog: Catalog = "",
) -> None:
    """Moves a consumer forward or back. Programs that read as this consumer go on from there."""
    if (after is None) == (not end):
        raise typer.BadParameter("give either --after or --end")
    call = invocation(context)
    with call.client() as client:
        moved = client.consumers.seek(name, after, epoch=epoch, catalog=catalog)
    call.tell(moved, f"consumer {moved.name} goes on behind event {moved.offset}; the last one has {moved.end}")
