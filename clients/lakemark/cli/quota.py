"""``lakemark quota``."""

from __future__ import annotations

from typing import Annotated

import typer

from lakemark.cli.context import invocation
from lakemark.cli.output import show_done, show_json, show_rows
from lakemark.cli.pairs import parse_pairs
from lakemark.client.quotas import QUOTA_NAMES, TenantQuota

app = typer.Typer(help="Quotas of tenants; a tenant is a catalog.", no_args_is_help=True)
Catalog = Annotated[str, typer.Argument(metavar="CATALOG", help="the tenant")]


@app.command()
def show(
    context: typer.Context, catalog: Annotated[str | None, typer.Argument(help="the tenant; default: all")] = None
) -> None:
    """Shows limits and how much of each is used. A * marks limits that were set for the tenant."""
    call = invocation(context)
    with call.client() as client:
        quotas = [client.quotas.get(catalog)] if catalog else list(client.quotas.list())
    if call.as_json:
        show_json(quotas[0] if catalog else quotas)
        return
    for quota in quotas:
        show_rows(["limit", "allowed", "used"], [_row(quota, name) for name in QUOTA_NAMES], title=quota.catalog)


@app.command("set")
def set_limits(
    context: typer.Context,
    catalog: Catalog,
    limits: Annotated[list[str], typer.Argument(metavar="LIMIT=NUMBER …", help=", ".join(QUOTA_NAMES))],
) -> None:
    """Sets limits of a tenant. Others stay as they are."""
    call = invocation(context)
    numbers = {name: _number(name, text) for name, text in parse_pairs(limits, "limit").items()}
    with call.client() as client:
        changed = client.quotas.set(catalog, **numbers)
        # A catalog without databases may be new or misspelt; only the operator knows.
        empty = not call.as_json and not changed.usage["databases"]
        others = [quota.catalog for quota in client.quotas.list() if quota.usage["databases"]] if empty else []
    _tell(context, changed)
    if empty:
        typer.echo(
            f"catalog {changed.catalog} has no databases: the limits hold as soon as it gets one. Catalogs that have "
            f"some: {', '.join(others) or 'none'}",
            err=True,
        )


@app.command()
def clear(
    context: typer.Context,
    catalog: Catalog,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[LIMIT …]", help="limits to remove; default: all")
    ] = None,
) -> None:
    """Removes limits that were set for a tenant, so that the service's defaults apply again."""
    call = invocation(context)
    with call.client() as client:
        changed = client.quotas.clear(catalog, *(names or ()))
    _tell(context, changed)


def _tell(context: typer.Context, changed: TenantQuota) -> None:
    if invocation(context).as_json:
        show_json(changed)
        return
    own = ", ".join(f"{name}={value:g}" for name, value in changed.own.items())
    show_done(f"catalog {changed.catalog}: {own or 'no limits of its own'}")


def _row(quota: TenantQuota, name: str) -> list[str]:
    mark = " *" if name in quota.own else ""
    limit = quota.limits[name]
    used = quota.usage["running_requests"] if name == "concurrent_requests" else quota.usage.get(name)
    return [name, f"{limit:,}{mark}", "" if used is None else f"{used:,}"]


def _number(name: str, text: str) -> float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError as error:
        raise typer.BadParameter(f"{name}: {text!r} is not a number") from error
