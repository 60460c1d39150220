"""Every public call of the client with wrong arguments: always a LakemarkError with a reason, never another error."""

from __future__ import annotations

import datetime as dt
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pytest

import lakemark
from lakemark import Client, DataFile, EventStream, Writer
from lakemark.errors import Internal, LakemarkError
from lakemark.parquet import write_table
from tests.integration.grpc_server import connected, running_service

ROWS: Final = pa.table({"id": pa.array([1], pa.int64()), "m": pa.array([1], pa.int32())})
WRONG: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    5,
    2**63,
    -(2**63) - 1,
    10**30,
    1.5,
    float("nan"),
    "",
    "x",
    "v" + "9" * 30,
    "\udc80",
    "db.\udc80",
    "\x00",
    "é" * 300,
    "x" * 10_000,
    (),
    ["\udc80"],
    [None],
    "db.t@v" + "9" * 30,
    {"a": 5},
    {"a": "\udc80"},
    {"\udc80": "a"},
    object(),
    dt.timedelta(days=-1),
    dt.timedelta.max,
    dt.datetime.max,
    dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=23))),
    ROWS,
    [DataFile("x", 1, 1)],
)
# What each parameter gets that is not the wrong one.
GOOD: Final[dict[str, Any]] = {
    "database": "db",
    "after": 0,
    "upto": 0,
    "columns": "id bigint",
    "column": "extra string",
    "new_name": "other",
    "new_type": "bigint",
    "comment": "",
    "changes": "",
    "left": "main",
    "right": "main",
    "version": 1,
    "from_version": 0,
    "instant": 1,
    "wanted": [],
    "writers": [],
    "catalog": "",
    "retain_versions": 1,
    "paths": [],
    "files": [],
    "partitions": None,
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("service")) as service, connected(service) as client:
        client.databases.create("db")
        yield client


@pytest.fixture
def table(client: Client) -> str:
    """A table of its own with one version, because tests may drop or rename it."""
    client.databases.create("db", if_not_exists=True)
    made = client.tables.create(f"db.t{uuid4().hex}", "id bigint, m int", partitioned_by=["m"])
    with client.begin(made.name) as writer:
        writer.write(ROWS)
        writer.commit()
    return made.name


def public(of: object) -> list[str]:
    """The names of public methods."""
    return [name for name, _ in inspect.getmembers(of, callable) if not name.startswith("_") and name != "close"]


def calls() -> list[tuple[str, str]]:
    """(attribute of the client, method) of every public call."""
    parts = ("databases", "tables", "timeline", "branches", "tags", "quotas", "consumers")
    with Client("127.0.0.1:1") as unused:
        found = [("", name) for name in public(unused)]
        return found + [(part, name) for part in parts for name in public(getattr(unused, part))]


def outcome(call: Callable[..., Any], **arguments: Any) -> Any:
    """The result of a call, with a generator's items, or its LakemarkError. Any other error fails the test."""
    positional = [
        arguments.pop(one.name)
        for one in inspect.signature(call).parameters.values()
        if one.kind == one.VAR_POSITIONAL and one.name in arguments
    ]
    try:
        given = call(*(arguments.pop(name) for name in _first(call, arguments) if positional), *positional, **arguments)
        return list(given) if inspect.isgenerator(given) else given
    except Internal:
        raise
    except LakemarkError as error:
        if re.match(r"a (key|bound|value) of \d+ bytes", error.message):
            raise ValueError("the store's words") from error
        return error


def _first(call: Callable[..., Any], arguments: dict[str, Any]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, one in inspect.signature(call).parameters.items() if one.kind in kinds and name in arguments]


def each_wrong(call: Callable[..., Any], table: str) -> Iterator[dict[str, Any]]:
    """The arguments of the call, each time with one of them wrong."""
    good = {**GOOD, "table": table, "name": table}
    parameters = [one for one in inspect.signature(call).parameters.values() if one.name != "self"]
    needed = {one.name: good[one.name] for one in parameters if one.default is one.empty and one.name in good}
    for one in parameters:
        for wrong in WRONG:
            yield {**needed, one.name: wrong}


@pytest.mark.parametrize(("part", "name"), calls(), ids=".".join)
def test_wrong_arguments_are_told_in_words(client: Client, table: str, part: str, name: str) -> None:
    failed = []
    call = getattr(getattr(client, part) if part else client, name)
    for arguments in each_wrong(call, table):
        try:
            given = outcome(call, **arguments)
        except Exception as error:
            failed.append(f"{name}({_shown(arguments)}): {type(error).__name__}: {error}"[:300])
            continue
        if isinstance(given, Writer):
            given.rollback()
        if isinstance(given, EventStream):
            given.close()
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("name", public(Writer))
def test_wrong_arguments_of_writers_are_told_in_words(client: Client, table: str, name: str) -> None:
    failed = []
    for arguments in each_wrong(getattr(Writer, name), table):
        writer = client.begin(table, start=name != "start")
        try:
            outcome(getattr(writer, name), **arguments)
        except Exception as error:
            failed.append(f"{name}({_shown(arguments)}): {type(error).__name__}: {error}"[:300])
        if writer.state in ("requested", "inflight"):
            writer.rollback()
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("field", [one for one in DataFile.__slots__ if one != "path"])
def test_wrong_fields_of_files_are_told_in_words(client: Client, table: str, field: str) -> None:
    failed = []
    for many in (1, 100):  # as messages, and as columns
        for wrong in WRONG:
            writer = client.begin(table)
            given = [
                DataFile(
                    **{"path": f"{writer.instant}/m=1/g{number}/f.parquet", "size_bytes": 1, "row_count": 1}
                    | {"partition": (1,)}
                    | {field: wrong}
                )
                for number in range(many)
            ]
            try:
                outcome(writer.stage, files=given)
            except Exception as error:
                failed.append(f"{many} with {field}={_shown(wrong)}: {type(error).__name__}: {error}"[:300])
            writer.rollback()
    assert not failed, "\n".join(failed)


def test_wrong_arguments_of_functions_are_told_in_words(client: Client, table: str) -> None:
    with client.begin(table) as writer:
        for wrong in WRONG:
            outcome(write_table, table=wrong, writer=writer)
            outcome(write_table, table=ROWS, writer=wrong)
        writer.rollback()
    for wrong in WRONG:
        for name in ("server", "timeout"):
            made = outcome(lakemark.connect, **{name: wrong})
            if isinstance(made, Client):
                made.close()


def _shown(value: object) -> str:
    return repr(value)[:120]
