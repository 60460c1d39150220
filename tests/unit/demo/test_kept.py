"""What a demo that was kept ends with: commands that name its service."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from lakemark.demo.main import commands
from lakemark.demo.service import Served


@pytest.mark.parametrize("java", [None, "/a java"])
def test_the_commands_name_the_service_that_stays(java: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if java:
        monkeypatch.setenv("JAVA_HOME", java)
    served = Served(Path("/demo"), grpc="127.0.0.1:1234", hms="thrift://127.0.0.1:5678")

    timeline, plan, spark = (shlex.split(line) for line in commands(served))

    assert timeline[1:] == ["--server", "127.0.0.1:1234", "timeline", "show", "air.flights"]
    assert plan[1:5] == ["--server", "127.0.0.1:1234", "plan", "air.flights"]
    assert "spark.hive.metastore.uris=thrift://127.0.0.1:5678" in spark
    assert (f"JAVA_HOME={java}" in spark) == (java is not None)
    assert ("JAVA_HOME='/a java' " in commands(served)[2]) == (java is not None)  # so that a shell assigns it
