"""``lakemark mounts``."""

from __future__ import annotations

from typing import Annotated

import typer

from lakemark.cli.context import invocation
from lakemark.cli.output import show_fields, show_json, show_rows, time_text

app = typer.Typer(help="Mounts: databases of outside Hive Metastores that can be read here.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="name of the database here")]
Catalog = Annotated[str, typer.Option(help="the catalog; default: hive")]


@app.command()
def create(
    context: typer.Context,
    name: Name,
    uri: Annotated[str, typer.Argument(metavar="URI", help="address of the outside Metastore: thrift://host:9083")],
    database: Annotated[str, typer.Option(help="name of the database there; default: the same")] = "",
    cache: Annotated[float, typer.Option(help="seconds for which answers are cached", min=0)] = 10,
    catalog: Catalog = "",
) -> None:
    """Makes a database of an outside Metastore readable here."""
    call = invocation(context)
    with call.client() as client:
        made = client.mounts.create(name, uri, database, cache_s=cache, catalog=catalog)
    call.tell(made, f"database {made.name} is {made.database} of {made.uri}, to be read")


@app.command("list")
def list_mounts(context: typer.Context, catalog: Catalog = "") -> None:
    """Lists mounted databases."""
    call = invocation(context)
    with call.client() as client:
        mounts = client.mounts.list(catalog=catalog)
    if call.as_json:
        show_json(mounts)
        return
    show_rows(["name", "outside", "database"], [[one.name, one.uri, one.database] for one in mounts])


@app.command()
def show(context: typer.Context, name: Name, catalog: Catalog = "") -> None:
    """Shows one mount."""
    call = invocation(context)
    with call.client() as client:
        mount = client.mounts.get(name, catalog=catalog)
    if call.as_json:
        show_json(mount)
        return
    show_fields(
        {
            "name": mount.name,
            "outside": mount.uri,
            "database": mount.database,
            "answers are kept for": f"{mount.cache_ms / 1_000:g} s",
            "created": time_text(mount.created_ms),
            "created by": mount.owner,
        }
    )


@app.command()
def drop(
    context: typer.Context,
    name: Name,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="do nothing if it does not exist")] = False,
    catalog: Catalog = "",
) -> None:
    """Removes a mount. Nothing changes in the outside Metastore."""
    call = invocation(context)
    with call.client() as client:
        dropped = client.mounts.drop(name, if_exists=if_exists, catalog=catalog)
    call.tell({"dropped": dropped}, f"{name} is not mounted any more" if dropped else f"nothing was mounted as {name}")
