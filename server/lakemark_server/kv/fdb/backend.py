"""Stores in FoundationDB: ``fdb://`` URLs with the path of a cluster file."""

from __future__ import annotations

from ..api import Store


class FdbBackend:
    schemes = ("fdb",)
    forms = ("fdb://relative/path/to/fdb.cluster", "fdb:///absolute/path/to/fdb.cluster")

    def open(self, url: str, *, read_only: bool) -> Store:
        from .store import FdbStore
        from .url import parse

        return FdbStore(parse(url), read_only=read_only)

    def exists(self, url: str) -> bool:
        return True  # only the cluster knows

    def make_place(self, url: str) -> None:
        """The cluster is made by its operator."""

    def public_url(self, url: str) -> str:
        return url

    def files(self, url: str) -> list[str]:
        return []
