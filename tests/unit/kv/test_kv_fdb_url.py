"""URLs of stores in FoundationDB, and the errors if the client library or the cluster file is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lakemark_core.errors import FailedPrecondition, InvalidArgument
from lakemark_server.kv import open_store, public_url
from lakemark_server.kv.fdb.url import FdbTarget, parse


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("fdb://fdb.cluster", FdbTarget(Path("fdb.cluster"), "lakemark")),
        ("fdb://some/where/fdb.cluster", FdbTarget(Path("some/where/fdb.cluster"), "lakemark")),
        ("fdb:///etc/foundationdb/fdb.cluster", FdbTarget(Path("/etc/foundationdb/fdb.cluster"), "lakemark")),
        ("fdb:///fdb.cluster?prefix=team-1", FdbTarget(Path("/fdb.cluster"), "team-1")),
    ],
)
def test_urls(url: str, target: FdbTarget) -> None:
    assert parse(url) == target
    assert public_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "fdb://",
        "fdb:///",
        "fdb://?prefix=a",
        "fdb://c?prefix=",
        "fdb://c?prefix=a/b",
        "fdb://c?prefix=" + "p" * 31,
        "fdb://c?database=a",
    ],
)
def test_what_is_wrong_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        open_store(url)


def test_a_cluster_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match="no cluster file"):
        open_store(f"fdb://{tmp_path}/fdb.cluster")


def test_without_the_client_library_the_error_says_what_to_install(tmp_path: Path) -> None:
    """In a process of its own, because a library stays loaded."""
    cluster = tmp_path / "fdb.cluster"
    cluster.write_text("a:b@127.0.0.1:1")
    program = """
import ctypes, sys
def missing(name, *rest): raise OSError(name)
ctypes.CDLL = missing
from lakemark_core.errors import Unimplemented
from lakemark_server.kv import open_store
for _ in range(2):
    try:
        open_store(sys.argv[1])
    except Unimplemented as error:
        print(error)
"""
    shown = subprocess.run(
        [sys.executable, "-c", program, f"fdb://{cluster}"], check=True, capture_output=True, text=True
    ).stdout
    assert shown.count("pip install 'lakemark[server,fdb]'") == shown.count("libfdb_c") == 2
