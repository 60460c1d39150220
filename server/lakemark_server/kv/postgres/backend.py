"""Stores in PostgreSQL: ``postgresql://`` URLs, as for libpq."""

from __future__ import annotations

from lakemark_core.errors import Unimplemented

from ..api import Store


class PostgresBackend:
    schemes = ("postgresql", "postgres")
    forms = ("postgresql://user@host/database",)

    def open(self, url: str, *, read_only: bool) -> Store:
        try:
            from .store import PostgresStore
            from .url import parse
        except ImportError as error:
            raise Unimplemented("PostgreSQL needs the extra: pip install 'lakemark[server,postgres]'") from error
        return PostgresStore(parse(url), read_only=read_only)

    def exists(self, url: str) -> bool:
        return True  # only the server knows

    def make_place(self, url: str) -> None:
        """The database is made by its operator."""

    def public_url(self, url: str) -> str:
        from .url import parse

        return parse(url).public_url

    def files(self, url: str) -> list[str]:
        return []
