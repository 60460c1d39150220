"""A real FoundationDB cluster for one test: one process on a loopback port, with the storage engine ``ssd``.

``LAKEMARK_TEST_FDB_SERVER`` names the program ``fdbserver``; ``fdbcli`` is expected beside it or on the path.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

SERVER_VARIABLE = "LAKEMARK_TEST_FDB_SERVER"
START_SECONDS_MAX = 60.0


def program() -> Path | None:
    """``fdbserver``, if the environment names it."""
    named = os.environ.get(SERVER_VARIABLE)
    return Path(named) if named else None


class FdbServer:
    """Started by ``with`` or ``start``."""

    def __init__(self, server: Path) -> None:
        self._server = server
        beside = server.with_name("fdbcli")
        self._cli = str(beside) if beside.exists() else shutil.which("fdbcli") or "fdbcli"
        self._process: subprocess.Popen[bytes] | None = None
        self.directory = Path(tempfile.mkdtemp(prefix="lakemark-fdb-"))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.cluster_file = self.directory / "fdb.cluster"
        self.cluster_file.write_text(f"test:{secrets.token_hex(4)}@{self._address}")
        self._made = False

    def __enter__(self) -> FdbServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Returns once the cluster takes commits. After ``kill`` that includes its recovery."""
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(self._server, "-p", self._address, "-C", self.cluster_file, "-d", data, "-L", data),
                    *("--memory", "2GiB", "--cache-memory", "200MiB"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if not self._made:
            self._ask("configure new single ssd")
            self._made = True
        # A write without effect: the cluster answers it once it has recovered.
        self._ask("writemode on; clear lakemark-test-ready")

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        """Stops the process, so that it falls silent like a server behind a broken network."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _ask(self, words: str) -> None:
        end = time.monotonic() + START_SECONDS_MAX
        while True:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError((self.directory / "log").read_text())
            done = subprocess.run(
                [self._cli, "-C", self.cluster_file, "--timeout", "10", "--exec", words],
                check=False,
                capture_output=True,
                text=True,
            )
            if done.returncode == 0:
                return
            if time.monotonic() > end:
                raise RuntimeError(done.stdout + done.stderr)
