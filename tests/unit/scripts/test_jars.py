"""The jars that tests and benchmarks add to Spark: of the version of its Hadoop, and no others than those named."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pyspark
import pytest
from benchmarks.peers import jars


def test_hadoop_aws_is_of_the_version_of_sparks_hadoop() -> None:
    (client,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    hadoop = client.stem.removeprefix("hadoop-client-api-")
    lock = tomllib.loads(jars.LOCK.read_text())
    assert f"org.apache.hadoop:hadoop-aws:{hadoop}" in lock["s3a, Spark 4.3"]
    assert f"org.apache.hadoop:hadoop-client-minicluster:{hadoop}" in lock["hdfs"]


def test_a_jar_of_other_content_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch_others(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        other = tmp_path / "hadoop-client-minicluster-3.5.0.jar"
        other.write_bytes(b"of somebody else")
        Path(command[command.index("-cachepath") + 1]).write_text(f"{other}\n")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("LAKEMARK_JARS", str(tmp_path / "kept"))
    monkeypatch.setattr(subprocess, "run", fetch_others)
    with pytest.raises(jars.JarsError, match=r"minicluster:3\.5\.0 has SHA-256"):
        jars.jars("hdfs")
    assert list((tmp_path / "kept").rglob("*.jar")) == []


def test_what_cannot_be_fetched_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "no route to the repository", "")

    monkeypatch.setenv("LAKEMARK_JARS", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(jars.JarsError, match=r"minicluster:3\.5\.0 cannot be fetched:\n.*no route"):
        jars.jars("hdfs")
