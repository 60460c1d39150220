"""URLs of PostgreSQL stores: which parameters go to the driver, which are ours, and no message shows the password."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_server.kv import open_store, public_url
from lakemark_server.kv.postgres.url import CONNECTIONS, parse

SECRET = "correct-horse"  # noqa: S105 - of nobody


def test_what_libpq_knows_goes_to_libpq() -> None:
    target = parse(f"postgresql://me:{SECRET}@db1:5432,db2:5433/lake?target_session_attrs=read-write&sslmode=require")
    assert target.schema == "lakemark"
    assert target.connections == CONNECTIONS
    assert dict(target.parameters) == {
        "user": "me",
        "password": SECRET,
        "host": "db1,db2",
        "port": "5432,5433",
        "dbname": "lake",
        "target_session_attrs": "read-write",
        "sslmode": "require",
        "connect_timeout": "5",
        "application_name": "lakemark",
    }


def test_schema_and_connections_are_ours() -> None:
    target = parse("postgres://me@/lake?schema=team_1&connections=8&host=%2Fvar%2Frun&connect_timeout=2")
    assert (target.schema, target.connections) == ("team_1", 8)
    assert target.parameters["host"] == "/var/run"
    assert target.parameters["connect_timeout"] == "2"
    assert not {"schema", "connections"} & target.parameters.keys()


def test_spaces_and_pluses_reach_libpq_as_they_are() -> None:
    target = parse("postgresql://h/lake?options=-c%20work_mem%3D8MB&password=a+b%2Bc")
    assert target.parameters["options"] == "-c work_mem=8MB"
    assert target.parameters["password"] == "a+b+c"  # noqa: S105 - of nobody


@pytest.mark.parametrize(
    "rest",
    [
        "lake?schema=Team",
        "lake?schema=a;b",
        "lake?schema=",
        "lake?schema=" + "s" * 64,
        "lake?connections=1",
        "lake?connections=1001",
        "lake?connections=many",
        "lake?no_such_option=1",
    ],
)
def test_what_is_wrong_is_refused_without_telling_the_password(rest: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        open_store(f"postgresql://me:{SECRET}@host/{rest}")
    assert SECRET not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("url", [f"postgresql://me:{SECRET}@[host/db", f"postgresql://me:{SECRET}@host:port:1/db?x"])
def test_what_is_no_url_is_refused_without_telling_the_password(url: str) -> None:
    with pytest.raises(InvalidArgument, match="postgresql://user:password@host:port/database") as raised:
        open_store(url)
    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_a_target_does_not_show_its_password() -> None:
    target = parse(f"postgresql://me:{SECRET}@host/lake")
    assert SECRET not in repr(target)
    assert target.scrubbed(f"cannot use {SECRET} here") == "cannot use *** here"
    assert parse("postgresql://me@host/lake").scrubbed("as it is") == "as it is"


def test_what_is_logged_of_a_url() -> None:
    url = f"postgresql://me:{SECRET}@host:5433/lake?schema=a&sslpassword={SECRET}"
    assert public_url(url) == "postgresql://me@host:5433/lake?schema=a"
    assert public_url("postgresql:///lake") == "postgresql:///lake?schema=lakemark"
    assert public_url("sqlite:///a/b.db") == f"sqlite:///{Path.cwd()}/a/b.db"
    assert public_url("sqlite:////a/b.db") == "sqlite:////a/b.db"
    assert SECRET not in public_url(f"postgresql+other://me:{SECRET}@host/lake")
