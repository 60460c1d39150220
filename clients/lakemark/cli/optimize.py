"""``lakemark optimize``."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from typing import Annotated, get_args

import typer

from lakemark import Client
from lakemark.cli.context import invocation
from lakemark.cli.output import counted, show_done, show_fields, show_json, show_rows, size_text, time_text
from lakemark.cli.pairs import parse_pairs
from lakemark.cli.tables import Name
from lakemark.client.optimization import (
    GroupOrder,
    OptimizationKind,
    OptimizationTask,
    OptimizerGroup,
    TableOptimization,
)
from lakemark_core.errors import InvalidArgument
from lakemark_core.partition_ttl import TTL_PROPERTY

app = typer.Typer(help="Shows and controls what the optimizer does with tables.", no_args_is_help=True)
Partition = Annotated[str, typer.Option(help="only this partition, such as month=1")]
AsIf = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="NAME=VALUE", help="answer as if the table had this property; may be repeated"),
]
Reason = Annotated[str, typer.Option(help="reason that 'optimize why' shows")]
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@app.command()
def show(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="database.table; default: all tables")] = "",
    group: Annotated[str, typer.Option(help="only tables of this group")] = "",
    state: Annotated[
        list[str] | None, typer.Option(help="only tables in this state, such as pending; may be repeated")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="go on, and show the tables again whenever something changes")
    ] = False,
    interval: Annotated[float, typer.Option(help="seconds between two requests of --follow", min=0.1)] = 1.0,
    rounds: Annotated[int, typer.Option(help="end --follow after this many requests; 0: never", min=0)] = 0,
    catalog: Annotated[str, typer.Option(help="the catalog; default: hive")] = "",
) -> None:
    """Shows tables with their state, and the tasks that run and wait."""
    call = invocation(context)
    shown: object = None
    looked = 0
    with call.client() as client:
        while True:
            tables = _tables(client, table, group, state or (), catalog)
            groups, leader = client.optimizations.groups()
            now = _told(tables, groups, leader)
            if now != shown:
                if call.as_json:
                    show_json({"tables": tables, "groups": groups, "leader": leader})
                else:
                    if shown is not None:
                        typer.echo(f"\n{dt.datetime.now(dt.UTC):%H:%M:%S} UTC")
                    _show(tables, groups, leader)
                shown = now
            looked += 1
            if not follow or (rounds and looked >= rounds):
                return
            time.sleep(interval)


@app.command()
def why(
    context: typer.Context,
    table: Name,
    partition: Partition = "",
    properties: AsIf = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="largest number of partitions to show")] = 20,
) -> None:
    """Says why a table and its partitions are, or are not, being optimized now, and what would change it."""
    call = invocation(context)
    with call.client() as client:
        told = client.optimizations.explain(
            table, partition, limit=limit, properties=parse_pairs(properties, "property")
        )
    if call.as_json:
        show_json(told)
        return
    show_fields(
        {
            "table": told.table,
            "state": told.state.replace("_", " "),
            "why": told.reason,
            "changed by": told.change,
            "group": f"{told.group} (priority {told.priority})",
            "files": f"{told.files} ({size_text(told.bytes)}) in {counted(told.partitions, 'partition')}, "
            f"{told.fragments} fragments, {told.deltas} deltas",
            "reads": f"{told.reads} plans in the last 24 hours",
            "worker time": f"{told.used_ms / 1_000:.1f} s of {told.allowed_ms / 1_000:.0f} s in the last hour",
            "next look": time_text(told.next_look_ms) if told.next_look_ms else "with the next commit",
            **({"large buckets": ", ".join(told.large_buckets)} if told.large_buckets else {}),
            **({"old partitions": _going(told)} if told.expired_partitions or told.next_expiry_ms else {}),
            "planner": told.leader or "no process plans: lakemark serve --optimizer",
        }
    )
    if told.partition_states:
        rows = [
            [
                one.partition or "(all)",
                one.state.replace("_", " "),
                one.fragments,
                one.segments,
                one.deltas,
                one.files,
                one.reason,
                one.change,
            ]
            for one in told.partition_states
        ]
        headings = ["partition", "state", "fragments", "segments", "deltas", "files", "why", "changed by"]
        show_rows(headings, rows, below=6)


@app.command()
def ttl(
    context: typer.Context,
    table: Name,
    properties: AsIf = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="largest number of partitions to show")] = 20,
) -> None:
    """Shows which partitions go because of their age, and when. Changes nothing."""
    call = invocation(context)
    with call.client() as client:
        told = client.optimizations.explain(
            table, limit=limit, properties=parse_pairs(properties, "property"), by_expiry=True
        )
    if call.as_json:
        show_json(told)
        return
    shown = [one for one in told.partition_states if one.expiry]
    if not shown:
        typer.echo(f"partitions of {table} stay: it has no {TTL_PROPERTY}, or no partitions")
        return
    typer.echo(_going(told))
    rows = [
        [
            one.partition,
            time_text(one.expires_ms) if one.expires_ms else "never",
            one.files,
            size_text(one.bytes),
            one.rows,
            one.expiry,
        ]
        for one in shown
    ]
    show_rows(["partition", "goes (UTC)", "files", "bytes", "rows", "why"], rows, below=5)


@app.command()
def run(
    context: typer.Context,
    table: Name,
    partition: Partition = "",
    kind: Annotated[OptimizationKind, typer.Option(help="kind of the run")] = "minor",
) -> None:
    """Asks for a run now, whether or not a threshold is reached."""
    call = invocation(context)
    with call.client() as client:
        told = client.optimizations.run(table, partition, kind)
    call.tell(told, f"{table}: {told.state.replace('_', ' ')}; {told.reason}")


@app.command()
def pause(context: typer.Context, table: Name, reason: Reason = "") -> None:
    """Stops planning for a table until it is resumed. Tasks that run go on to their end."""
    call = invocation(context)
    with call.client() as client:
        told = client.optimizations.pause(table, reason)
    call.tell(told, f"{table} is paused")


@app.command()
def resume(context: typer.Context, table: Name) -> None:
    """Resumes planning for a table, and tries again the partitions that were stopped after failures."""
    call = invocation(context)
    with call.client() as client:
        told = client.optimizations.resume(table)
    call.tell(told, f"{table}: {told.state.replace('_', ' ')}; {told.reason}")


@app.command()
def hold(
    context: typer.Context,
    table: Name,
    duration: Annotated[str, typer.Option("--for", help="how long: 30m, 1h, 2d")],
    partition: Partition = "",
    reason: Reason = "",
) -> None:
    """Keeps the optimizer away from a table or a partition for a while."""
    call = invocation(context)
    with call.client() as client:
        made = client.optimizations.hold(table, parse_duration(duration), partition, reason)
    call.tell(made, f"{partition or 'all'} of {table} is not touched until {time_text(made.until_ms)} UTC")


@app.command()
def release(context: typer.Context, table: Name, partition: Partition = "") -> None:
    """Ends the hold of a table or a partition."""
    call = invocation(context)
    with call.client() as client:
        released = client.optimizations.release(table, partition)
    call.tell({"released": released}, f"{table} is released" if released else f"{table} was not held")


@app.command()
def history(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="database.table; default: all tables")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="largest number of runs to show")] = 20,
) -> None:
    """Lists runs, the latest first: files and bytes before and after, seconds, and how each run ended."""
    call = invocation(context)
    with call.client() as client:
        runs = [one for one, _ in zip(client.optimizations.runs(table), range(limit))]  # noqa: B905
    if call.as_json:
        show_json(runs)
        return
    headings = ["ended (UTC)", "table", "kind", "state", "files", "bytes", "s", "by", "partition", "why", "message"]
    show_rows(headings, [_run_row(one) for one in runs], below=8)


@app.command()
def groups(context: typer.Context) -> None:
    """Lists groups with their workers, quotas and tasks."""
    call = invocation(context)
    with call.client() as client:
        there, leader = client.optimizations.groups()
    if call.as_json:
        show_json({"groups": there, "leader": leader})
        return
    _show_groups(there, leader)


@app.command()
def group(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="the group")],
    order: Annotated[
        str | None, typer.Option(help=f"which tables come first: {', '.join(get_args(GroupOrder))}")
    ] = None,
    quota: Annotated[
        str | None, typer.Option(help="worker time that it may use in an hour: 30m, 4h; 0s: unlimited")
    ] = None,
    paused: Annotated[
        bool | None, typer.Option("--pause/--resume", help="stop or resume giving tasks to its workers")
    ] = None,
) -> None:
    """Changes the order and the quota of a group, or pauses and resumes it."""
    if order is not None and order not in get_args(GroupOrder):
        raise InvalidArgument(f"order {order!r} is not known; use {', '.join(get_args(GroupOrder))}")
    call = invocation(context)
    chosen: GroupOrder | None = next((one for one in get_args(GroupOrder) if one == order), None)
    with call.client() as client:
        made = client.optimizations.set_group(
            name, order=chosen, quota=None if quota is None else parse_duration(quota), paused=paused
        )
    if call.as_json:
        show_json(made)
        return
    _show_groups([made], "")


def _going(told: TableOptimization) -> str:
    """How many partitions go because of their age, and when the next one does."""
    going = (
        f"{told.expired_partitions} of {counted(told.partitions, 'partition')} of {told.table} go with the next look"
    )
    return going + (f"; the next one at {time_text(told.next_expiry_ms)} UTC" if told.next_expiry_ms else "")


def parse_duration(text: str) -> dt.timedelta:
    """``90s``, ``30m``, ``1h``, ``2d``. Raises InvalidArgument."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isascii() or not number.replace(".", "", 1).isdigit():
        raise InvalidArgument(f"{text!r} is not a duration: write 90s, 30m, 1h or 2d")
    return dt.timedelta(seconds=float(number) * _UNITS[unit])


def _tables(
    client: Client, table: str, group_name: str, states: Sequence[str], catalog: str
) -> list[TableOptimization]:
    if table:
        return [client.optimizations.explain(table)]
    return list(client.optimizations.list(group=group_name, states=states, catalog=catalog))


def _told(tables: Sequence[TableOptimization], there: Sequence[OptimizerGroup], leader: str) -> object:
    """What makes a new look worth showing: times and ages alone do not."""
    seen = [
        (one.table, one.state, one.files, one.deltas, one.version, [task.state for task in one.tasks]) for one in tables
    ]
    return seen, [(one.name, one.slots, one.running, one.waiting) for one in there], leader


def _show(tables: Sequence[TableOptimization], there: Sequence[OptimizerGroup], leader: str) -> None:
    if not leader:
        typer.echo("no process plans: lakemark serve --optimizer")
    rows = [
        [
            one.table,
            one.state.replace("_", " "),
            one.files,
            size_text(one.bytes),
            one.fragments,
            one.deltas,
            one.group,
            f"{one.used_ms / 1_000:.0f}",
            one.reason,
        ]
        for one in tables
    ]
    show_rows(["table", "state", "files", "bytes", "fragments", "deltas", "group", "used s", "why"], rows, below=8)
    tasks = [task for one in tables for task in one.tasks]
    if tasks:
        task_rows = [
            [task.table, task.partition or "(all)", task.kind, task.state, task.files, task.worker or None, task.reason]
            for task in tasks
        ]
        show_rows(["task of", "partition", "kind", "state", "files", "worker", "why"], task_rows, below=6)
    if there:
        _show_groups(there, leader)


def _show_groups(there: Sequence[OptimizerGroup], leader: str) -> None:
    rows = [
        [
            one.name,
            one.order,
            "paused" if one.paused else "",
            len(one.workers),
            one.slots,
            one.running,
            one.waiting,
            f"{one.used_ms / 1_000:.0f}",
            f"{one.quota_ms / 1_000:.0f}" if one.quota_ms else None,
            [f"{worker.worker_id} ({', '.join(worker.executors)})" for worker in one.workers],
        ]
        for one in there
    ]
    headings = ["group", "order", "", "workers", "slots", "running", "waiting", "used s", "quota s", "who"]
    show_rows(headings, rows, below=9)
    if leader:
        show_done(f"planned by {leader}")


def _run_row(run: OptimizationTask) -> list[object]:
    done = run.state == "done"
    return [
        time_text(run.ended_ms),
        run.table,
        run.kind,
        run.state,
        f"{run.files_before} → {run.files_after}" if done else None,
        f"{size_text(run.bytes_before)} → {size_text(run.bytes_after)}" if done else None,
        f"{(run.ended_ms - run.assigned_ms) / 1_000:.1f}" if run.assigned_ms else None,
        run.executor or None,
        run.partition or None,
        run.reason,
        run.message or None,
    ]
