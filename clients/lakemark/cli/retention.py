"""``lakemark savepoint`` and ``lakemark clean``."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import typer

from lakemark.cli.context import invocation
from lakemark.cli.output import show_done, show_json, show_rows, size_text, time_text
from lakemark.cli.tables import Name

app = typer.Typer(help="Savepoints: versions that cleaning keeps.", no_args_is_help=True)
Branch = Annotated[str, typer.Option(help="the branch; default: main")]


@app.command("create")
def create(
    context: typer.Context,
    table: Name,
    version: Annotated[int, typer.Option(min=0, help="the version to keep; 0: the latest")] = 0,
    branch: Branch = "",
    comment: Annotated[str, typer.Option(help="why it is kept")] = "",
) -> None:
    """Keeps a version and its files from being cleaned, until the savepoint is dropped."""
    call = invocation(context)
    with call.client() as client:
        made = client.timeline.make_savepoint(table, version, branch=branch, comment=comment)
    call.tell(made, f"version {made.read_version} of {table} is kept (instant {made.instant})")


@app.command("list")
def list_savepoints(context: typer.Context, table: Name) -> None:
    """Lists the savepoints of all branches."""
    call = invocation(context)
    with call.client() as client:
        savepoints = client.timeline.savepoints(table)
    if call.as_json:
        show_json(savepoints)
        return
    rows = [
        [savepoint.branch, savepoint.version, time_text(savepoint.created_ms), savepoint.comment]
        for savepoint in savepoints
    ]
    show_rows(["branch", "version", "made (UTC)", "comment"], rows)


@app.command("drop")
def drop(
    context: typer.Context,
    table: Name,
    version: Annotated[int, typer.Argument(min=1, help="the version that it keeps")],
    branch: Branch = "",
) -> None:
    """Drops a savepoint: the version may be cleaned again."""
    call = invocation(context)
    with call.client() as client:
        client.timeline.drop_savepoint(table, version, branch=branch)
    call.tell({"dropped": version}, f"version {version} of {table} has no savepoint any more")


def clean(
    context: typer.Context,
    table: Name,
    retain_versions: Annotated[int, typer.Option(min=0, help="how many of the newest versions stay at least")] = 0,
    retain_days: Annotated[float, typer.Option(min=0, help="for how many days back the table can still be read")] = 0,
    branch: Branch = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be done, and do nothing")] = False,
) -> None:
    """Ends old versions and deletes the files that no other version has.

    What tags, savepoints, branches and open writers need is kept. Backups that are older may need files that are
    deleted here.
    """
    if not retain_versions and not retain_days:
        raise typer.BadParameter("say what to keep: --retain-versions, --retain-days or both")
    call = invocation(context)
    with call.client() as client:
        done = client.timeline.clean(
            table,
            retain_versions=retain_versions,
            retain=dt.timedelta(days=retain_days),
            branch=branch,
            dry_run=dry_run,
        )
    if call.as_json:
        show_json(done)
        return
    would = "would end" if dry_run else "ended"
    kept = f"; kept: {', '.join(map(str, done.kept_versions))}" if done.kept_versions else ""
    show_done(
        f"{done.expired_versions} versions of {table} {would}, with {done.files} files ({size_text(done.bytes)}); the "
        f"earliest is {done.earliest_version}{kept}"
    )
