"""Which backend a URL names, and what can be said of a store without opening it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lakemark_core.errors import FailedPrecondition, InvalidArgument, NotFound
from lakemark_server.kv import backend_of, open_store
from lakemark_server.kv.backends import BACKENDS
from lakemark_server.process import open_existing, open_or_make


def test_every_form_and_scheme_names_its_backend() -> None:
    for backend in BACKENDS:
        for start in (*backend.forms, *(f"{scheme}://x" for scheme in backend.schemes)):
            assert backend_of(start) is backend
    schemes = [scheme for backend in BACKENDS for scheme in backend.schemes]
    assert len(schemes) == len(set(schemes))


def test_all_forms_are_told() -> None:
    with pytest.raises(InvalidArgument) as raised:
        open_store("mysql://host/database")
    assert raised.value.message == (
        "'mysql' is not a kind of store: write sqlite:///relative/path.db, sqlite:////absolute/path.db, "
        "postgresql://user@host/database, fdb://relative/path/to/fdb.cluster or fdb:///absolute/path/to/fdb.cluster"
    )


def test_no_driver_is_imported_before_a_url_names_it() -> None:
    lazy = ["psycopg", "sqlite3", *(f"lakemark_server.kv.{name}.store" for name in ("fdb", "postgres", "sqlite"))]
    code = f"import sys, lakemark_server.kv; print([name for name in {lazy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/some/where/lakemark.db"
    with pytest.raises(NotFound, match=r"there is no store at sqlite:///.*; name one with --store or LAKEMARK_STORE"):
        open_existing(url)
    assert not list(tmp_path.iterdir())
    open_or_make(url).close()
    open_existing(url, read_only=True).close()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FailedPrecondition, match=f"cannot make {tmp_path}/file/below: Not a directory"):
        open_or_make(f"sqlite:///{tmp_path}/file/below/lakemark.db")


@pytest.mark.parametrize("opening", [open_existing, open_or_make])
@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://host/file.db", "file.db"])
def test_urls_of_no_store_are_refused(url: str, opening: type) -> None:
    with pytest.raises(InvalidArgument, match=r"write sqlite:///relative/path\.db"):
        opening(url)
