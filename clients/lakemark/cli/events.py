"""``lakemark events``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from lakemark import Client, Event
from lakemark.cli.context import invocation
from lakemark.cli.output import cell, counted, show_fields, show_json, size_text, time_text
from lakemark.client.events import KINDS
from lakemark_core.errors import EventsTrimmed, OffsetUnknown
from lakemark_core.messages.cloud_events import cloud_event_json

app = typer.Typer(
    help="Events: every change of a catalog, in order. With --json, each event is a CloudEvent in one line.",
    no_args_is_help=True,
)
After = Annotated[int | None, typer.Option(min=0, help="only events after this offset; 0: all that are kept")]
Epoch = Annotated[
    int | None, typer.Option(min=0, help="epoch of that offset; it is an error if the store was restored since")
]
Catalog = Annotated[str, typer.Option(help="the catalog; default: hive")]
Patterns = Annotated[
    list[str] | None,
    typer.Option(
        "--only", help="only events of these names: sales, sales.orders, 'sales.*', '*.orders_*'; may be repeated"
    ),
]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", help=f"only events of this kind; may be repeated: {', '.join(KINDS)}")
]


@app.command()
def follow(
    context: typer.Context,
    after: After = None,
    epoch: Epoch = None,
    only: Patterns = None,
    kind: Kinds = None,
    consumer: Annotated[str, typer.Option(help="read as this consumer, from its place and with its filter")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="end after this many events; 0: never")] = 0,
    catalog: Catalog = "",
) -> None:
    """Writes events as they happen, until it is interrupted."""
    call = invocation(context)
    with (
        call.client() as client,
        contextlib.suppress(KeyboardInterrupt),
        client.events(
            after, epoch=epoch, patterns=only or (), kinds=kind or (), consumer=consumer, catalog=catalog
        ) as events,
    ):
        for number, event in enumerate(events, 1):
            _write(event, as_json=call.as_json)
            sys.stdout.flush()
            if number == limit:
                events.acknowledge()
                break


@app.command("list")
def list_events(
    context: typer.Context,
    after: After = None,
    epoch: Epoch = None,
    only: Patterns = None,
    kind: Kinds = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="largest number of events")] = 20,
    catalog: Catalog = "",
) -> None:
    """Lists the latest events, or those after an offset."""
    call = invocation(context)
    with call.client() as client:
        if after is None:
            chosen = _latest(client, limit, only or [], kind or [], catalog)
        else:
            events = client.events(
                after, epoch=epoch, patterns=only or (), kinds=kind or (), catalog=catalog, follow=False
            )
            chosen = [event for event, _ in zip(events, range(limit), strict=False)]
    for event in chosen:
        _write(event, as_json=call.as_json)


@app.command()
def show(
    context: typer.Context,
    offset: Annotated[int | None, typer.Argument(min=1, help="the event; default: show which events are kept")] = None,
    catalog: Catalog = "",
) -> None:
    """Shows an event with all of its fields, or which events are kept."""
    call = invocation(context)
    with call.client() as client:
        if offset is not None:
            event = _one(client, offset, catalog)
            if call.as_json:
                _write(event, as_json=True)
            else:
                show_fields(_fields(event))
            return
        log = client.event_log(catalog)
    if call.as_json:
        show_json(log)
        return
    show_fields(
        {
            "catalog": log.catalog,
            "events": f"{log.first} to {log.last}" if log.last >= log.first else "none",
            "epoch": log.epoch,
            "first (UTC)": time_text(log.first_ms),
            "last (UTC)": time_text(log.last_ms),
            "size": size_text(log.size_bytes),
            "kept": f"{log.retain_ms / 86_400_000:g} days, at most {size_text(log.retain_bytes)}",
        }
    )


def _one(client: Client, offset: int, catalog: str) -> Event:
    log = client.event_log(catalog)
    if offset > log.last:
        raise OffsetUnknown(f"there is no event {offset} yet; the last one has offset {log.last}")
    if offset < log.first:
        raise EventsTrimmed(f"event {offset} is no longer kept; the first event that is kept has offset {log.first}")
    return next(client.events(offset - 1, catalog=catalog, follow=False))


def _latest(client: Client, limit: int, patterns: list[str], kinds: list[str], catalog: str) -> list[Event]:
    """The last events that fit: looks at more and more of the log until there are enough."""
    log = client.event_log(catalog)
    window = limit
    while True:
        after = max(log.first - 1, log.last - window)
        events = list(client.events(after, patterns=patterns, kinds=kinds, catalog=catalog, follow=False))
        if len(events) >= limit or after < log.first:
            return events[-limit:]
        window = max(1_000, window * 4)


def _write(event: Event, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(cloud_event_json(event.message) + "\n")
        return
    words = [f"{event.offset:>8}", time_text(event.time_ms), event.kind, event.subject or event.catalog, brief(event)]
    sys.stdout.write("  ".join(word for word in words if word) + "\n")


def brief(event: Event) -> str:
    """What happened, in a few words; "" if the kind says it all."""
    told = event.detail
    match event.message.WhichOneof("detail"):
        case "commit":
            changes = [f"+{counted(told['added_files'], 'file')} ({told['added_rows']} rows)"]
            if told["removed_files"]:
                changes.append(f"-{counted(told['removed_files'], 'file')}")
            return f"version {told['version']} of {told['branch']}: {told['operation']} {' '.join(changes)}"
        case "partitions_change":
            values = ["/".join(partition["values"]) for partition in told["partitions"][:3]]
            more = told["count"] - len(values)
            return ", ".join([*values, *([f"{more} more"] if more else [])])
        case "table_change" if event.kind == "table_renamed":
            before = told["before"]["name"]
            return f"was {before['database']}.{before['table']}"
        case "function_change":
            return str(told["name_after"] or told["name_before"])
        case "rollback":
            return f"{told['operation']} {told['instant']}: {told['reason']}"
        case "clean":
            return f"-{counted(told['deleted_files'], 'file')} ({size_text(told['deleted_bytes'])})"
        case "savepoint":
            return f"version {told['version']} of {told['branch']}"
        case "reference":
            return f"{told['name']} at version {told['version']}"
        case "quota":
            return cell(told["own"]) or "defaults"
        case _:
            return ""


def _fields(event: Event) -> dict[str, Any]:
    return {
        "offset": event.offset,
        "epoch": event.epoch or None,
        "time (UTC)": time_text(event.time_ms),
        "kind": event.kind,
        "catalog": event.catalog,
        "database": event.database,
        "table": event.table,
        "table id": event.table_id or None,
        "by": event.by,
        "request id": event.request_id,
        **_flat(event.detail),
    }


def _flat(detail: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The fields of nested objects under joined names, without those that say nothing."""
    flat: dict[str, Any] = {}
    for name, value in detail.items():
        label = f"{prefix}{name.replace('_', ' ')}"
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{label}: ")
        elif value not in (0, "", False, [], None):
            flat[label] = value
    return flat
