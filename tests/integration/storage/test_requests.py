"""How many S3 requests each operation takes: the table of docs/storage.md, and nothing beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lakemark_server.verify import check_files
from tests.integration.storage.conftest import S3World, rows

PAGE = Path(__file__).parents[3] / "docs" / "storage.md"


def documented() -> dict[str, dict[str, int]]:
    """By operation, what the table of the page says."""
    lines = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE.read_text().partition("## Requests")[2], re.MULTILINE)
    return {
        name: {operation: int(count) for count, operation in re.findall(r"(\d+) (\w+)", counts)}
        for name, counts in lines
        if name not in ("operation", "---")
    }


def measured(world: S3World) -> dict[str, dict[str, int]]:
    client, name = world.client, "db.t"
    found: dict[str, dict[str, int]] = {}

    def count(operation: str, act: Callable[[], object]) -> None:
        found[operation] = world.requests_of(act)

    count("create a database", lambda: client.databases.create("other"))
    count("create a table", lambda: world.table(name))
    count("append one file", lambda: world.append(name, 1))
    count("append one file to each of 3 partitions", lambda: world.append(name, 1, 2, 3))
    count("plan", lambda: client.plan(name))
    count("read 4 files", lambda: client.read(name))
    writer = client.begin(name, "append")
    writer.write(rows(4))
    count("roll back a writer of one file", writer.rollback)
    count("`lakemark verify --files`, 4 files", lambda: check_files(world.service.store))
    count("`lakemark verify --files --orphans`, 4 files", lambda: check_files(world.service.store, orphans=True))
    world.append(name, 9, operation="overwrite_table")
    count("clean, 4 files", lambda: client.timeline.clean(name, retain_versions=1))
    count("create and drop a branch", lambda: (client.branches.create(name, "b"), client.branches.drop(name, "b")))
    count("drop a table", lambda: client.tables.drop(name))
    count("undrop a table", lambda: client.tables.undrop(name))
    client.tables.drop(name)
    count("purge a dropped table of one file", lambda: client.tables.purge(name))
    count("drop a database", lambda: client.databases.drop("other"))
    return found


def test_each_operation_takes_the_requests_that_are_documented(world: S3World) -> None:
    assert measured(world) == documented()


def test_a_plan_and_a_commit_ask_the_store_for_nothing_however_many_files_there_are(world: S3World) -> None:
    name = world.table()
    for month in range(20):
        world.append(name, month)
    assert world.requests_of(lambda: world.client.plan(name, "month > 3")) == {}
    with world.client.begin(name, "append") as writer:
        writer.write(rows(30, 31))
        assert world.requests_of(writer.commit) == {}


def test_a_clean_of_many_files_deletes_five_hundred_of_them_at_once(
    world: S3World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request has 1,000 keys: of each file its own and the marker of its directory, and the marker of the instant.

    Other programs write markers.
    """
    from lakemark_core.storage import s3

    monkeypatch.setattr(s3, "KEYS_A_REQUEST", 20)
    name = world.table()
    world.append(name, *range(30))
    world.append(name, 99, operation="overwrite_table")
    assert world.requests_of(lambda: world.client.timeline.clean(name, retain_versions=1)) == {"DeleteObjects": 4}
    assert len(world.bucket.keys()) == 1
