"""An outside Hive Metastore for the demo, which a listener keeps up to date, and the Spark that reads from it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, cast

import lakemark
from lakemark_core.errors import Unavailable

FOLLOW_S_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 20
_LOOK_S: Final = 0.2


class Outside:
    """``uri``: for listeners. ``log``: the file with its messages."""

    def __init__(self, process: subprocess.Popen[str], uri: str, log: Path) -> None:
        self.uri, self.log = uri, log
        self._process = process
        self._input, self._output = cast(IO[str], process.stdin), cast(IO[str], process.stdout)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement, by the Spark that knows this metastore only. Raises Unavailable if it ended."""
        self._input.write(" ".join(statement.split()) + "\n")
        self._input.flush()
        return [tuple(row) for row in json.loads(self.answer())]

    def answer(self) -> str:
        """The next line that it prints. Raises Unavailable if it ended."""
        line = self._output.readline()
        if not line:
            self._process.wait()
            raise Unavailable(f"the outside metastore ended; its log says:\n{self.log.read_text()[-2_000:]}")
        return line

    def stop(self) -> None:
        """It ends with its input."""
        self._input.close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()


@contextmanager
def outside_metastore(directory: Path) -> Iterator[Outside]:
    """One that works in the directory, on a free port of loopback. Raises Unavailable if it does not start."""
    directory.mkdir(exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path = directory / "spark.log"
    command = [sys.executable, "-m", "lakemark.demo.outside_metastore", str(directory), str(port)]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    pipe = subprocess.PIPE
    with path.open("w") as log:
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=environment, cwd=directory
        )
    outside = Outside(process, f"thrift://127.0.0.1:{port}", path)
    try:
        outside.answer()
        yield outside
    finally:
        outside.stop()


def wait_until_it_followed(client: lakemark.Client, name: str) -> str:
    """Waits until the listener has told all there is, at most ``FOLLOW_S_MAX``. Returns what is wrong; "": nothing."""
    end = time.monotonic() + FOLLOW_S_MAX
    while True:
        state = client.listeners.get(name)
        if state.compared_ms and not state.lag_events:
            return "; ".join(f"{one.name}: {one.reason}" for one in state.problems)
        if time.monotonic() > end:
            return state.last_error or f"{state.lag_events} events behind"
        time.sleep(_LOOK_S)
