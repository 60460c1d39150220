"""Stores in a SQLite file: ``sqlite:///path``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lakemark_core.errors import FailedPrecondition, InvalidArgument

from ..api import Store

_START: Final = "sqlite:///"


class SqliteBackend:
    schemes = ("sqlite",)
    forms = ("sqlite:///relative/path.db", "sqlite:////absolute/path.db")

    def open(self, url: str, *, read_only: bool) -> Store:
        path = url.removeprefix(_START)
        if not url.startswith(_START) or path.strip("/") == "" or path.startswith(":") or "?" in path:
            from ..backends import accepted_forms

            raise InvalidArgument(f"{url!r} does not name a file: write {accepted_forms()}")
        if read_only:
            from .read_only import SqliteReadOnlyStore

            return SqliteReadOnlyStore(Path(path))
        from .store import SqliteStore

        return SqliteStore(Path(path))

    def exists(self, url: str) -> bool:
        return not url.startswith(_START) or Path(url.removeprefix(_START)).is_file()

    def make_place(self, url: str) -> None:
        """Makes the directory of the file."""
        if not url.startswith(_START):  # refused when it is opened
            return
        path = Path(url.removeprefix(_START))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FailedPrecondition(f"cannot make {path.parent}: {error.strerror}", path=str(path)) from error

    def public_url(self, url: str) -> str:
        """With the absolute path: the reader need not know from where the process was started."""
        return "".join([_START, *self.files(url)]) if url.startswith(_START) else url

    def files(self, url: str) -> list[str]:
        return [str(Path(url.removeprefix(_START)).absolute())]
