"""The functions of ``lakemark_spark`` over Spark Connect: the client has no JVM, the server is a plain Spark."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lakemark import Client
from lakemark_server.process import Service
from tests.e2e.spark_runner import SparkProcess, interpreter

pytestmark = pytest.mark.spark

DRIVER = Path(__file__).with_name("connect_driver.py")
KEYED = {
    "lakemark.primary-key": "id,p",
    "lakemark.bucket.count": "2",
    "lakemark.write.mode": "merge-on-read",
    "lakemark.merge.ordering-column": "t",
}


def test_all_functions_work_over_spark_connect(client: Client, service: Service, tmp_path: Path) -> None:
    client.databases.create("connect", if_not_exists=True)
    client.tables.create("connect.plain", "id bigint, v string")
    client.tables.create("connect.keyed", "id bigint, t int, p string", partitioned_by=["p"], properties=KEYED)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.catalogImplementation": "in-memory",
    }
    with SparkProcess(interpreter("4.3"), "", tmp_path / "spark", settings=settings):
        command = [sys.executable, "-W", "ignore", str(DRIVER), f"sc://127.0.0.1:{port}", service.grpc_address]
        done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=200, check=False)

    assert done.returncode == 0, done.stderr[-4_000:]
    answers = json.loads(done.stdout.splitlines()[-1])
    assert answers["module"] == "pyspark.sql.connect.session"
    many, files, rows = answers["plain"]
    assert many == 82, "each task wrote a file, and one wrote rows that Spark knew beforehand"
    assert files == 1
    expected = [[8, "v8"], [8, "v8"], [9, "u"], [9, "u"], [10, "u"], *([one, "r"] for one in range(100, 110))]
    assert rows == expected
    read, told = answers["keyed"]
    assert read == [[2, 2, "a"], [3, 1, "b"], [5, 5, "a"]]
    assert told == [["delete", 1, 1, "a"], ["update_after", 2, 2, "a"], ["insert", 5, 5, "a"]]
    assert answers["streamed"] == [[[10, 0, "s"], [11, 1, "s"]], ["0", "1"]]
