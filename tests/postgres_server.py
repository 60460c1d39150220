"""A real PostgreSQL server for tests: in a new directory, on a Unix socket, with default durability.

``python -m tests.postgres_server COMMAND...`` runs the command with ``LAKEMARK_TEST_POSTGRES`` naming a new server.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import psycopg

from tests.stores import SERVER_VARIABLE

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0

# Executes the program in its arguments as ``nobody``. Popen's ``user`` would fork the whole process instead: gRPC would
# restart its threads in the child, and they crash when the child's files are closed before the program is executed.
_AS_NOBODY = """
import os, pwd, sys
nobody = pwd.getpwnam("nobody")
os.setgroups([])
os.setgid(nobody.pw_gid)
os.setuid(nobody.pw_uid)
os.execv(sys.argv[1], sys.argv[1:])
"""


def binaries() -> Path | None:
    """The directory of ``postgres`` and ``initdb``: what scripts/test-postgres fetched, else the newest
    installation."""
    found = [*ROOT.glob(".postgres/*/pginstall18/bin")]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    on_path = shutil.which("postgres")
    found += [Path(on_path).resolve().parent] if on_path else []
    return next((path for path in found if (path / "initdb").exists() and (path / "postgres").exists()), None)


class PostgresServer:
    """Started by ``with`` or ``start``. PostgreSQL refuses to run as root; then it runs as ``nobody``."""

    def __init__(self, programs: Path, *settings: str) -> None:
        self._programs = programs
        self._settings = [argument for setting in settings for argument in ("-c", setting)]
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user = [sys.executable, "-IS", "-c", _AS_NOBODY] if os.geteuid() == 0 else []
        self.directory = Path(tempfile.mkdtemp(prefix="lakemark-pg-"))
        password = secrets.token_hex(8)
        (self.directory / "password").write_text(password)
        if os.geteuid() == 0:
            for path in (self.directory, self.directory / "password"):
                shutil.chown(path, "nobody")
        self.url = f"postgresql://lakemark:{password}@/postgres?host={quote(str(self.directory), safe='')}"
        self._run("initdb", "-U", "lakemark", "-A", "scram-sha-256", f"--pwfile={self.directory / 'password'}")

    def __enter__(self) -> PostgresServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Returns once the server answers. After ``kill`` that includes its recovery."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            if self._process is None or self._process.poll() is not None:
                # Right after a kill, a child of the old server may still hold its memory, and the new one gives up.
                self._process = self._spawn()
            try:
                psycopg.connect(self.url).close()
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    raise RuntimeError((self.directory / "log").read_text()) from error
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Ends the server and all its children with SIGKILL."""
        assert self._process is not None
        pid = self._process.pid
        # A stopped process makes no more children, and those that end stay in its list.
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for victim in (*map(int, children), pid):
            os.kill(victim, signal.SIGKILL)
        self._process.wait()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                [
                    *self._as_user,
                    *(self._programs / "postgres", "-D", self.directory / "data", "-k", self.directory),
                    *("-c", "listen_addresses=", "-c", "fsync=on", "-c", "synchronous_commit=on"),
                    # After a crash it syncs each file of the directory, or the file system in one call.
                    *("-c", "recovery_init_sync_method=syncfs"),
                    *self._settings,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.directory,
            )

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [
                *(*self._as_user, self._programs / program, "-D", self.directory / "data"),
                *("-E", "UTF8", "--locale=C", *arguments),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self.directory,
        )


def main() -> int:
    programs = binaries()
    if programs is None:
        print("no PostgreSQL server is installed: run scripts/test-postgres", file=sys.stderr)
        return 2
    with PostgresServer(programs) as server:
        command = subprocess.Popen(sys.argv[1:], env={**os.environ, SERVER_VARIABLE: server.url})
        try:
            return command.wait()
        finally:
            command.terminate()


if __name__ == "__main__":
    raise SystemExit(main())
