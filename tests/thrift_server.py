"""Spark's Thrift Server on loopback, and beeline, which speaks to it: the way by which BI tools come."""

from __future__ import annotations

import csv
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from benchmarks.peers.java import java_home

from tests.e2e.spark_runner import directory_options, java_options

START_S_MAX: Final = 180.0
STOP_S_MAX: Final = 20.0
STATEMENTS_S_MAX: Final = 180.0
_PROMPTS: Final = re.compile(r"^(?:\d+: jdbc:hive2://\S*> ?)+")
"""Which beeline writes without a terminal, too."""


class BeelineError(Exception):
    """A statement failed. The text is beeline's."""


class ThriftServer:
    """``python``: the interpreter of an environment with PySpark, whose jars have server and client. ``directory``,
    which is made, gets its files and ``thrift_server.log``. ``close`` ends it."""

    def __init__(self, python: Path, metastore_uri: str, directory: Path) -> None:
        directory.mkdir(parents=True)
        (directory / "tmp").mkdir()
        (found,) = (python.parent.parent / "lib").glob("python*/site-packages/pyspark")
        self._bin = found / "bin"
        self._directory = directory
        self._log = directory / "thrift_server.log"
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        settings = {
            "spark.hadoop.hive.metastore.uris": metastore_uri,
            "spark.sql.warehouse.dir": (directory / "warehouse").as_uri(),
            "spark.hadoop.hive.server2.thrift.port": str(self.port),
            "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
            "spark.hadoop.hive.exec.scratchdir": str(directory / "scratch"),
            "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
            "spark.sql.catalogImplementation": "hive",
            "spark.local.dir": str(directory / "tmp"),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
        }
        command = [str(self._bin / "spark-submit"), "--master", "local[2]", "--driver-memory", "1g"]
        command += ["--driver-java-options", f"{java_options(python)} {directory_options(directory)}"]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += ["--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2", "spark-internal"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # spark-submit is a script, and its JVM ends with it
            )
        try:
            self._await_start()
        except BaseException:
            self.close()
            raise

    def _await_start(self) -> None:
        until = time.monotonic() + START_S_MAX
        while True:
            assert self._process.poll() is None, self._log.read_text()[-4_000:]
            assert time.monotonic() < until, self._log.read_text()[-4_000:]
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.2)
            else:
                return

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        chosen = {"TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1"}
        home = java_home()
        return kept | chosen | ({"JAVA_HOME": str(home)} if home is not None else {})

    def beeline(self, *statements: str, user: str = "ann") -> list[list[str]]:
        """The rows of the last statement, as texts; null is "NULL". Raises BeelineError at the first that fails."""
        command = [str(self._bin / "beeline"), "-u", f"jdbc:hive2://127.0.0.1:{self.port}/default", "-n", user]
        command += ["--silent=true", "--outputformat=csv2", "--showHeader=false", "--nullemptystring=false"]
        for statement in statements:
            command += ["-e", statement]
        ended = subprocess.run(
            command,
            cwd=self._directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STATEMENTS_S_MAX,
            check=False,
        )
        if ended.returncode:
            raise BeelineError(ended.stderr[:8_000])
        rows = (_PROMPTS.sub("", line) for line in ended.stdout.splitlines())
        return [row for row in csv.reader(rows) if row]

    def close(self) -> None:
        """Ends server and JVM."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
