"""The backends of the store, and which of them a URL names."""

from __future__ import annotations

import re
from typing import Final, Protocol

from lakemark_core.errors import InvalidArgument

from .api import Store
from .fdb.backend import FdbBackend
from .postgres.backend import PostgresBackend
from .sqlite.backend import SqliteBackend


class Backend(Protocol):
    """One kind of store. What it needs is imported when a store of it is opened: drivers are optional."""

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes of its URLs, without ``://``."""

    @property
    def forms(self) -> tuple[str, ...]:
        """How its URLs are written, for messages."""

    def open(self, url: str, *, read_only: bool) -> Store:
        """See ``open_store``. Raises Unimplemented if the backend's extra is not installed."""

    def exists(self, url: str) -> bool:
        """False if there certainly is no store at the URL; does not open it."""

    def make_place(self, url: str) -> None:
        """Makes the place of a new store, if that is up to this process. Raises FailedPrecondition."""

    def public_url(self, url: str) -> str:
        """The URL without secrets, and with the absolute path of a file."""

    def files(self, url: str) -> list[str]:
        """Absolute paths of the files on this machine that make up the store."""


BACKENDS: Final[tuple[Backend, ...]] = (SqliteBackend(), PostgresBackend(), FdbBackend())

_SCHEME: Final = re.compile(r"[A-Za-z0-9+.-]+")


def open_store(url: str, *, read_only: bool = False) -> Store:
    """Opens the store at ``url``.

    For SQLite it is written as for SQLAlchemy, with a path after the third slash; for PostgreSQL as for libpq, with
    ``schema`` and ``connections`` as further parameters; for FoundationDB with the path of the cluster file and
    ``prefix`` as a parameter.

    ``read_only``: nothing is written, the store is neither made nor migrated, and commits raise FailedPrecondition. An
    SQLite file can then be opened while another process serves it.

    Raises InvalidArgument for other URLs, Unimplemented for a backend without its extra, and what the stores of the
    backends raise.
    """
    return backend_of(url).open(url, read_only=read_only)


def backend_of(url: str) -> Backend:
    """Raises InvalidArgument if the URL names none."""
    backend = _find(url)
    if backend is None:
        scheme, separator, _ = url.partition("://")
        # Quoted only if it is the name of a scheme: a mistyped URL may hold a password there.
        named = repr(scheme) if separator and _SCHEME.fullmatch(scheme) else "this"
        raise InvalidArgument(f"{named} is not a kind of store: write {accepted_forms()}")
    return backend


def accepted_forms() -> str:
    """How URLs of stores are written, for messages."""
    *forms, last = [form for backend in BACKENDS for form in backend.forms]
    return f"{', '.join(forms)} or {last}"


def public_url(url: str) -> str:
    """The URL of a store as it may be logged: without what is secret in it."""
    backend = _find(url)
    return backend.public_url(url) if backend else f"{url.partition('://')[0]}://..."


def _find(url: str) -> Backend | None:
    scheme, separator, _ = url.partition("://")
    return next((backend for backend in BACKENDS if separator and scheme in backend.schemes), None)
