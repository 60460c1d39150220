"""``lakemark databases``."""

from __future__ import annotations

from typing import Annotated

import typer

from lakemark.cli.context import invocation
from lakemark.cli.output import show_fields, show_json, show_rows
from lakemark.cli.pairs import parse_pairs

app = typer.Typer(help="Databases: list, show, create, drop.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="DATABASE")]


@app.command("list")
def list_databases(context: typer.Context) -> None:
    """Lists all databases."""
    call = invocation(context)
    with call.client() as client:
        names = client.databases.list()
    if call.as_json:
        show_json(names)
    else:
        show_rows(["database"], [[name] for name in names])


@app.command()
def show(context: typer.Context, name: Name) -> None:
    """Shows a database with its location."""
    call = invocation(context)
    with call.client() as client:
        database = client.databases.get(name)
    if call.as_json:
        show_json(database)
    else:
        show_fields(
            {
                "name": database.name,
                "location": database.location,
                "description": database.description,
                "owner": database.owner,
                "properties": database.properties,
            }
        )


@app.command()
def create(
    context: typer.Context,
    name: Name,
    location: Annotated[
        str, typer.Option(help="directory or URI of the database; default: a directory in the service's warehouse")
    ] = "",
    description: Annotated[str, typer.Option(help="what the database is for")] = "",
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="KEY=VALUE", help="a property; may be repeated")
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="do nothing if it exists already")] = False,
) -> None:
    """Creates a database."""
    call = invocation(context)
    with call.client() as client:
        made = client.databases.create(
            name,
            location=location,
            description=description,
            properties=parse_pairs(properties, "property"),
            if_not_exists=if_not_exists,
        )
    call.tell(made, f"database {made.name} at {made.location}")


@app.command()
def drop(
    context: typer.Context,
    name: Name,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="do nothing if it does not exist")] = False,
) -> None:
    """Drops an empty database."""
    call = invocation(context)
    with call.client() as client:
        client.databases.drop(name, if_exists=if_exists)
    call.tell({"dropped": name}, f"dropped database {name}")
