"""A real Trino on loopback, with one catalog: the Metastore at a port."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.jars import jars

JAVA: Final = os.environ.get("LAKEMARK_TEST_TRINO_JAVA", "")
"""The Java that runs Trino; scripts/test-trino sets it."""
_START_S_MAX: Final = 120.0
_STOP_S_MAX: Final = 30.0
_PLUGIN: Final = "hive"


class TrinoError(Exception):
    """A statement failed. The text is Trino's."""


class TrinoServer:
    """``directory``, which is made, gets its settings and ``trino.log``. ``close`` ends it.

    ``metastore``: ``thrift://…``. ``options``: further properties of the catalog ``lake``.
    """

    def __init__(self, directory: Path, metastore: str, options: Mapping[str, str] | None = None) -> None:
        home = _home()
        (directory / "catalog").mkdir(parents=True)
        self._log = directory / "trino.log"
        self._port = free_port()
        catalog = {
            "connector.name": "hive",
            "hive.metastore.uri": metastore,
            "fs.hadoop.enabled": "true",
            **(options or {}),
        }
        (directory / "catalog" / "lake.properties").write_text(_properties(catalog))
        settings = {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": str(self._port),
            "http-server.log.enabled": "false",
            "discovery.uri": f"http://127.0.0.1:{self._port}",
            "catalog.config-dir": str(directory / "catalog"),
            "plugin.dir": str(home / "plugin"),
            "query.max-memory-per-node": "300MB",
            "memory.heap-headroom-per-node": "200MB",
        }
        (directory / "config.properties").write_text(_properties(settings))
        command = [JAVA, "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog.enable-console=true"]
        command += [f"-Dconfig={directory}/config.properties", "-Dnode.environment=test", "-Dnode.id=one"]
        command += [f"-Dnode.data-dir={directory}/data", "--add-opens=java.base/java.nio=ALL-UNNAMED"]
        command += ["-cp", f"{home}/lib/*", "io.trino.server.TrinoServer"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            self._await_start()
        except BaseException:
            self.close()
            raise

    def _await_start(self) -> None:
        until = time.monotonic() + _START_S_MAX
        while b"SERVER STARTED" not in self._log.read_bytes() or not self._has_nodes():
            assert time.monotonic() < until, self._log.read_text()[-4_000:]
            assert self._process.poll() is None, self._log.read_text()[-4_000:]
            time.sleep(0.1)

    def _has_nodes(self) -> bool:
        """The only node announces itself to itself some time after it has started."""
        try:
            return bool(self.rows("SELECT count(*) FROM (VALUES 1, 2) AS t (x) WHERE x > rand()"))
        except TrinoError:
            return False

    def rows(self, statement: str) -> list[list[Any]]:
        """The rows of a statement in the catalog ``lake``, schema ``default``. Raises TrinoError."""
        return self.ran(statement)[0]

    def ran(self, statement: str) -> tuple[list[list[Any]], dict[str, Any]]:
        """Also what Trino counts of the query, in its own words (``processedRows``, ``peakMemoryBytes`` …)."""
        answer = self._ask("POST", "/v1/statement", statement)
        rows: list[list[Any]] = []
        while True:
            rows += answer.get("data", [])
            following = answer.get("nextUri")
            if following is None:
                break
            answer = self._ask("GET", following.partition(str(self._port))[2])
        if "error" in answer:
            raise TrinoError(answer["error"]["message"])
        return rows, answer["stats"]

    def _ask(self, verb: str, path: str, body: str = "") -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        headers = {"X-Trino-User": "tester", "X-Trino-Catalog": "lake", "X-Trino-Schema": "default"}
        try:
            connection.request(verb, path, body.encode(), headers)
            response = connection.getresponse()
            content = response.read()
            assert response.status == http.client.OK, content
            answer: dict[str, Any] = json.loads(content)
            return answer
        finally:
            connection.close()

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


def _home() -> Path:
    """Trino with the one plugin that is needed, unpacked beside its archive."""
    (archive,) = jars("trino")
    home = archive.parent / "trino"
    if not home.exists():
        unpacked = archive.parent / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir()
        # All of it, because files of a plugin may be links to those of another.
        subprocess.run(["tar", "xzf", archive, "--strip-components=1", "-C", unpacked], check=True)
        for plugin in (unpacked / "plugin").iterdir():
            if plugin.name != _PLUGIN:
                shutil.rmtree(plugin)
        unpacked.rename(home)
    return home


def _properties(settings: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())
