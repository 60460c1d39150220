"""``lakemark health``: whether a service and its store answer."""

from __future__ import annotations

import time

import typer

from lakemark.cli.context import invocation


def health(context: typer.Context) -> None:
    """Checks that the service answers, with a request for which it must read its store."""
    began = time.monotonic()
    with invocation(context).client() as client:
        client.databases.list()
    taken_ms = round((time.monotonic() - began) * 1_000, 1)
    invocation(context).tell({"answers": True, "ms": taken_ms}, f"the service and its store answer ({taken_ms} ms)")
