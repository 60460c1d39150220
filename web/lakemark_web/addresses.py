"""Addresses of the pages. Pure."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from lakemark_server.catalog.names import DEFAULT_CATALOG


def table_path(catalog: str, database: str, table: str, page: str = "") -> str:
    """The address of a page of a table."""
    parts = ["tables", catalog, database, table, *([page] if page else [])]
    return "/" + "/".join(quote(part, safe="") for part in parts)


def page_path(path: str, catalog: str, fragment: str = "", **fields: str | int) -> str:
    """The address of a page about a catalog, such as "/events". Fields that are "" or 0 are left out."""
    given = {"catalog": "" if catalog == DEFAULT_CATALOG else catalog, **fields}
    query = urlencode({name: value for name, value in given.items() if value}, quote_via=quote)
    return path + (f"?{query}" if query else "") + (f"#{fragment}" if fragment else "")
