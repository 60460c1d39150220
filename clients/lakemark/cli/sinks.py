"""``lakemark sinks``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakemark.cli.context import invocation
from lakemark.cli.output import counted, plain, show_fields, show_json, show_rows, time_text
from lakemark.cli.pairs import parse_pairs
from lakemark.client.sinks import ALARM, KafkaFormat, Sink, new_secret

app = typer.Typer(help="Sinks: events that the service delivers to webhooks, Kafka and by mail.", no_args_is_help=True)
create = typer.Typer(help="Creates a sink.", no_args_is_help=True)
app.add_typer(create, name="create")

Name = Annotated[str, typer.Argument(help="name of the sink")]
Catalog = Annotated[str, typer.Option(help="the catalog; default: hive")]
Patterns = Annotated[
    list[str] | None,
    typer.Option(
        "--only", help="only events of these names: sales, sales.orders, 'sales.*', '*.orders_*'; may be repeated"
    ),
]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", help="only events of this kind, such as committed; may be repeated")
]
After = Annotated[
    int | None,
    typer.Option(min=0, help="offset after which to begin; 0: with the first event; default: with the next one"),
]
Paused = Annotated[bool, typer.Option("--paused", help="deliver nothing until it is resumed")]
Letters = Annotated[list[int] | None, typer.Argument(metavar="[ID …]", help="ids of dead letters; or give --all")]
All = Annotated[bool, typer.Option("--all", help="all dead letters")]
SecretFile = Annotated[
    Path, typer.Option(exists=True, dir_okay=False, help="file with the secret, which 'lakemark sinks secret' prints")
]
PairsFile = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="file with secrets, NAME=VALUE in each line")
]


@app.command()
def secret() -> None:
    """Prints a new secret for the signatures of a webhook. Keep it in a file. The receiver needs it, too."""
    typer.echo(new_secret())


@create.command()
def webhook(
    context: typer.Context,
    name: Name,
    url: Annotated[str, typer.Argument(help="address of the receiver: https://…")],
    secret_file: SecretFile,
    headers_file: PairsFile = None,
    batch: Annotated[bool, typer.Option("--batch", help="send several events in one request")] = False,
    timeout_ms: Annotated[int, typer.Option(min=0, help="milliseconds for one attempt; 0: 10,000")] = 0,
    attempts_max: Annotated[
        int, typer.Option(help="attempts after which events become dead letters; 0: 8, negative: never")
    ] = 0,
    only: Patterns = None,
    kind: Kinds = None,
    after: After = None,
    paused: Paused = False,
    catalog: Catalog = "",
) -> None:
    """Creates a sink that posts events to a webhook, as CloudEvents that are signed as Standard Webhooks says."""
    call = invocation(context)
    with call.client() as client:
        made = client.sinks.create_webhook(
            name,
            url,
            secret_file.read_text().strip(),
            headers=_pairs(headers_file),
            batch=batch,
            timeout_ms=timeout_ms,
            attempts_max=attempts_max,
            patterns=only or (),
            kinds=kind or (),
            after=after,
            paused=paused,
            catalog=catalog,
        )
    _tell(context, made, f"delivers to {made.receiver['url']}")


@create.command()
def kafka(
    context: typer.Context,
    name: Name,
    bootstrap_servers: Annotated[str, typer.Argument(help="brokers: host:port,host:port")],
    topic: Annotated[str, typer.Argument(help="the topic, which should exist")],
    format: Annotated[KafkaFormat, typer.Option(help="format of the values")] = "cloudevents",  # noqa: A002
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="property of librdkafka; may be repeated"),
    ] = None,
    secrets_file: PairsFile = None,
    only: Patterns = None,
    kind: Kinds = None,
    after: After = None,
    paused: Paused = False,
    catalog: Catalog = "",
) -> None:
    """Creates a sink that writes events to a topic of Kafka. Events of a table stay in order."""
    call = invocation(context)
    with call.client() as client:
        made = client.sinks.create_kafka(
            name,
            bootstrap_servers,
            topic,
            format=format,
            properties=parse_pairs(properties or [], "property"),
            secret_properties=_pairs(secrets_file),
            patterns=only or (),
            kinds=kind or (),
            after=after,
            paused=paused,
            catalog=catalog,
        )
    _tell(context, made, f"delivers to topic {topic} at {bootstrap_servers}")


@create.command()
def mail(
    context: typer.Context,
    name: Name,
    to: Annotated[list[str], typer.Argument(help="addresses of the recipients")],
    only: Patterns = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help=f"only events of this kind; default: {ALARM}; may be repeated")
    ] = None,
    after: After = None,
    paused: Paused = False,
    catalog: Catalog = "",
) -> None:
    """Creates a sink that sends events by mail, by default when the optimizer has stopped on a table."""
    call = invocation(context)
    with call.client() as client:
        made = client.sinks.create_mail(
            name, to, patterns=only or (), kinds=kind or (ALARM,), after=after, paused=paused, catalog=catalog
        )
    _tell(context, made, f"writes to {', '.join(to)}")


@app.command("list")
def list_sinks(context: typer.Context, catalog: Catalog = "") -> None:
    """Lists sinks, and how far each is behind."""
    call = invocation(context)
    with call.client() as client:
        sinks = client.sinks.list(catalog=catalog)
    if call.as_json:
        show_json(sinks)
        return
    rows = [
        [
            sink.name,
            sink.kind,
            sink.state,
            sink.lag_events,
            f"{sink.lag_s:.1f}",
            sink.delivered,
            sink.failed_attempts,
            sink.dead_letters,
            sink.last_error if sink.state == "failing" else None,
        ]
        for sink in sinks
    ]
    headings = ["name", "kind", "state", "lag", "lag s", "delivered", "failed", "dead letters", "last error"]
    show_rows(headings, rows, below=8)


@app.command()
def show(context: typer.Context, name: Name, catalog: Catalog = "") -> None:
    """Shows a sink, without its secrets."""
    call = invocation(context)
    with call.client() as client:
        sink = client.sinks.get(name, catalog=catalog)
    if call.as_json:
        show_json(sink)
        return
    show_fields(
        {
            "sink": f"{sink.name} of catalog {sink.catalog}",
            sink.kind: ", ".join(f"{key}={value}" for key, value in sink.receiver.items() if value not in ("", [], {})),
            "tables": ", ".join(sink.patterns) or "all",
            "kinds": ", ".join(sink.kinds) or "all",
            "state": sink.state,
            "offset": f"{sink.offset} (epoch {sink.epoch})",
            "behind": f"{counted(sink.lag_events, 'event')}, {sink.lag_s:.1f} s",
            "delivered": f"{sink.delivered}, the last one at {time_text(sink.last_delivered_ms)}",
            "failed attempts": str(sink.failed_attempts),
            "dead letters": str(sink.dead_letters),
            "last error": f"{sink.last_error} ({time_text(sink.last_error_ms)})" if sink.last_error else None,
            "failing since": time_text(sink.failing_since_ms) if sink.failing_since_ms else None,
            "next attempt": time_text(sink.next_attempt_ms) if sink.next_attempt_ms else None,
            "runner": sink.runner or None,
            "created": f"{time_text(sink.created_ms)} by {sink.owner or 'nobody known'}",
        }
    )


@app.command()
def pause(context: typer.Context, name: Name, catalog: Catalog = "") -> None:
    """Pauses a sink until it is resumed."""
    call = invocation(context)
    with call.client() as client:
        sink = client.sinks.pause(name, catalog=catalog)
    _tell(context, sink, "is paused")


@app.command()
def resume(
    context: typer.Context,
    name: Name,
    after: Annotated[
        int | None, typer.Option(min=0, help="offset after which to go on; default: where the sink is")
    ] = None,
    end: Annotated[bool, typer.Option("--end", help="go on with the next event that happens")] = False,
    catalog: Catalog = "",
) -> None:
    """Lets a sink go on. A failing sink tries again at once."""
    call = invocation(context)
    with call.client() as client:
        sink = client.sinks.resume(name, after=after, end=end, catalog=catalog)
    _tell(context, sink, f"goes on behind offset {sink.offset}")


@app.command()
def drop(context: typer.Context, name: Name, catalog: Catalog = "") -> None:
    """Drops a sink, with its dead letters."""
    call = invocation(context)
    with call.client() as client:
        client.sinks.drop(name, catalog=catalog)
    call.tell({"dropped": name}, f"sink {name} is dropped")


@app.command("set-secrets")
def set_secrets(
    context: typer.Context,
    name: Name,
    secret_file: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, help="file with a secret of a webhook; with two, each signs"),
    ] = None,
    pairs_file: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="file with headers, or with properties of Kafka: NAME=VALUE in each line"
        ),
    ] = None,
    catalog: Catalog = "",
) -> None:
    """Replaces all secrets of a sink."""
    call = invocation(context)
    with call.client() as client:
        if client.sinks.get(name, catalog=catalog).kind == "webhook":
            signing = [path.read_text().strip() for path in secret_file or ()]
            sink = client.sinks.set_webhook_secrets(name, signing, headers=_pairs(pairs_file), catalog=catalog)
        else:
            sink = client.sinks.set_kafka_secrets(name, _pairs(pairs_file), catalog=catalog)
    _tell(context, sink, "has other secrets")


@app.command("dead-letters")
def dead_letters(
    context: typer.Context,
    name: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="largest number to show")] = 20,
    catalog: Catalog = "",
) -> None:
    """Lists dead letters: events that a sink has given up, oldest first. --json also shows the events."""
    call = invocation(context)
    with call.client() as client:
        letters = [letter for letter, _ in zip(client.sinks.dead_letters(name, catalog=catalog), range(limit))]  # noqa: B905
    if call.as_json:
        show_json([{**plain(letter), "event": letter.event.cloud_event()} for letter in letters])
        return
    rows = [
        [
            letter.id,
            letter.event.offset,
            letter.event.kind,
            letter.event.subject,
            letter.attempts,
            time_text(letter.failed_ms),
            "is sent again" if letter.resending else letter.reason,
        ]
        for letter in letters
    ]
    show_rows(["id", "offset", "kind", "subject", "attempts", "failed (UTC)", "reason"], rows, below=6)


@app.command()
def resend(
    context: typer.Context, name: Name, ids: Letters = None, everything: All = False, catalog: Catalog = ""
) -> None:
    """Sends dead letters again. Those that arrive are removed from the list."""
    call = invocation(context)
    with call.client() as client:
        count = client.sinks.resend(name, _chosen(ids, everything), catalog=catalog)
    call.tell({"resending": count}, f"sink {name} sends {counted(count, 'dead letter')} again")


@app.command("drop-letters")
def drop_letters(
    context: typer.Context, name: Name, ids: Letters = None, everything: All = False, catalog: Catalog = ""
) -> None:
    """Removes dead letters."""
    call = invocation(context)
    with call.client() as client:
        count = client.sinks.drop_letters(name, _chosen(ids, everything), catalog=catalog)
    call.tell({"dropped": count}, f"{counted(count, 'dead letter')} of sink {name} dropped")


def _chosen(ids: list[int] | None, everything: bool) -> list[int] | None:
    if bool(ids) == everything:
        raise typer.BadParameter("give the ids of dead letters, or --all")
    return ids or None


def _pairs(path: Path | None) -> dict[str, str]:
    """The secrets of a file, which is no argument, because arguments are seen by everybody on the machine."""
    lines = [] if path is None else [line for line in path.read_text().splitlines() if line.strip()]
    return parse_pairs(lines, "secret")


def _tell(context: typer.Context, sink: Sink, what: str) -> None:
    invocation(context).tell(sink, f"sink {sink.name} {what}")
