"""``lakemark listeners`` and ``lakemark mounts``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lakemark import Client
from lakemark.cli.app import run
from lakemark_hms.outside import Metastore
from lakemark_server.process import Service
from tests.integration.listener.conftest import Outside, settled
from tests.integration.listener.objects import alter, create, database, get, table

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(service: Service, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command line; gives its exit code and what it wrote."""

    def given(*words: str) -> tuple[int, str]:
        code = run(["--server", service.grpc_address, *words])
        written = capsys.readouterr()
        return code, written.out + written.err

    return given


def _json(answer: tuple[int, str]) -> Any:
    return json.loads(answer[1])


def test_listeners(command: Command, client: Client, here: Metastore, there: Metastore, outside: Outside) -> None:
    here.call("create_database", database=database("sales"))
    create(here, table("t"))
    assert command("listeners", "create", "hive", outside.uri, "sales", "--compare-interval", "60")[0] == 0
    settled(client, "hive")
    assert command("listeners", "compare", "hive") == (0, "2 objects compared, 0 differences\n")
    listed = _json(command("listeners", "list", "--json"))
    assert [(one["name"], one["condition"], one["lag_events"]) for one in listed] == [("hive", "active", 0)]
    assert "active" in command("listeners", "list")[1]

    changed = get(there, "sales", "t")
    changed.parameters["by"] = "hand"
    alter(there, changed)
    code, text = command("listeners", "compare", "hive")
    assert (code, "changed by hand" in text, "2 objects compared, 1 difference" in text) == (1, True, True)
    assert command("listeners", "repair", "hive")[0] == 0
    settled(client, "hive")
    shown = command("listeners", "show", "hive")[1]
    assert "changed by hand" in shown
    assert "60 s" in shown
    command("listeners", "repair", "hive", "--overwrite", "sales.t")
    settled(client, "hive")
    assert _json(command("listeners", "show", "hive", "--json"))["problems"] == []
    assert "is paused" in command("listeners", "pause", "hive")[1]
    assert "goes on" in command("listeners", "resume", "hive")[1]
    assert "is dropped" in command("listeners", "drop", "hive")[1]
    code, text = command("listeners", "show", "hive")
    assert (code, "no listener 'hive'" in text) == (66, True)
    assert "there was no" in command("listeners", "drop", "hive", "--if-exists")[1]


def test_mounts(command: Command, outside: Outside) -> None:
    assert command("mounts", "create", "legacy", outside.uri, "--database", "sales", "--cache", "5")[0] == 0
    assert "legacy" in command("mounts", "list")[1]
    shown = _json(command("mounts", "show", "legacy", "--json"))
    assert (shown["database"], shown["cache_ms"], shown["uri"]) == ("sales", 5_000, outside.uri)
    assert "5 s" in command("mounts", "show", "legacy")[1]
    assert command("mounts", "create", "legacy", outside.uri)[0] == 65
    assert "not mounted any more" in command("mounts", "drop", "legacy")[1]
    assert command("mounts", "drop", "legacy")[0] == 66
