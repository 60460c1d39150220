"""Answers about optimization as JSON: the same as on the command line, and nothing that changes anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakemark import Client
from lakemark.cli.app import run
from tests.integration.grpc_server import connected, running_service
from tests.integration.test_optimization import until, working
from tests.integration.web.conftest import SETTINGS, Site

WHY = "/api/tables/hive/default/t/optimization"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with running_service(tmp_path, optimizer=True, optimizer_interval_s=0.05, **SETTINGS) as service:
        yield Site(service)


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with connected(site.service) as opened:
        yield opened


def asked(site: Site, path: str, status: int = 200) -> Any:
    answer = site.get(path)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json"), answer.text
    return json.loads(answer.text)


def make(client: Client) -> None:
    properties = {"lakemark.optimize.minor.fragments": "2"}
    client.tables.create("default.t", "id bigint, d string", partitioned_by=["d"], properties=properties)
    for _ in range(2):
        with client.begin("default.t") as writer:
            writer.write(pa.table({"id": [1, 2], "d": ["a", "b"]}))
            writer.commit()


def test_what_runs_why_and_what_ran(site: Site, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    make(client)
    told = asked(site, WHY)
    assert (told["table"], told["state"], told["group"]) == ("default.t", "pending", "default")
    assert told["policy"]["lakemark.optimize.minor.fragments"] == "2"
    assert [one["partition"] for one in told["partition_states"]] == ["d=a", "d=b"]
    assert [one["partition"] for one in asked(site, WHY + "?partition=d%3Db")["partition_states"]] == ["d=b"]
    with working(client):
        until(lambda: len(asked(site, WHY + "/history")["runs"]) == 2)
        (group,) = asked(site, "/api/optimization/groups")["groups"]
        assert (group["name"], group["slots"], len(group["workers"])) == ("default", 2, 1)
    first = asked(site, WHY + "/history?limit=1")
    second = asked(site, f"{WHY}/history?limit=1&before={first['before']}")
    both = first["runs"] + second["runs"]
    assert {one["partition"] for one in both} == {"d=a", "d=b"}
    assert asked(site, f"{WHY}/history?limit=1&before={second['before']}") == {"runs": [], "before": None}
    everywhere = asked(site, "/api/optimization/history?limit=1")
    rest = asked(site, f"/api/optimization/history?before={everywhere['before']}")
    assert everywhere["runs"] + rest["runs"] == both
    assert run(["-s", client.address, "--json", "optimize", "history", "default.t"]) == 0
    assert json.loads(capsys.readouterr().out) == both, "the same as on the command line"


def test_tables_as_the_planner_has_seen_them(site: Site, client: Client) -> None:
    make(client)
    until(lambda: asked(site, "/api/optimization/tables?state=pending")["tables"])
    seen = asked(site, "/api/optimization/tables?limit=1")
    assert [one["table"] for one in seen["tables"]] == ["default.t"]
    assert seen["leader"]
    assert asked(site, "/api/optimization/tables?state=stopped&state=held")["tables"] == []
    assert asked(site, f"/api/optimization/tables?after={seen['after']}")["tables"] == []


@pytest.mark.parametrize(
    ("path", "status", "code", "told"),
    [
        ("/api/tables/hive/default/nothing/optimization", 404, "table_not_found", "nothing"),
        ("/api/nothing", 404, "not found", "no page"),
        ("/api/optimization/tables?state=sleepy", 400, "invalid_argument", "'sleepy' is no state; there are idle"),
        ("/api/optimization/tables?limit=1001", 400, "invalid_argument", "1 to 1000"),
        ("/api/optimization/tables?after=x", 400, "invalid_argument", "no number"),
        ("/api/optimization/history?before=1.2", 400, "invalid_argument", "what an answer had"),
    ],
)
def test_errors_are_told_in_words(site: Site, path: str, status: int, code: str, told: str) -> None:
    error = asked(site, path, status)["error"]
    assert error["code"] == code
    assert told in error["message"]


def test_nothing_can_be_changed_here(site: Site) -> None:
    assert site.post(WHY, {}).status == 405
