"""Lakemark's own service as a child process, and its processor time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NO_SETTINGS: Final[Mapping[str, str]] = {}
STOP_TIMEOUT_S: Final = 30.0
_READY: Final = re.compile(r"lakemark ready grpc=(\S+) hms=(\S*) (?:\S+=\S+ )*pid=(\d+)")
_PAGE: Final = re.compile(r" web=(\S+) ")
_SERVE: Final = (
    "from lakemark_server.process import main; from lakemark_server.settings import Settings; main(Settings())"
)
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class ServiceStartError(RuntimeError):
    """The service ended before it was ready. The message has its log."""


@dataclass(frozen=True)
class Service:
    pid: int
    grpc_address: str
    hms_port: int  # 0: not served
    web_url: str = ""  # "": there is no web page

    def cpu_s(self) -> float:
        """User and system time of the process, in seconds."""
        return cpu_s(self.pid)

    def rss_mb(self) -> int:
        """Resident memory of the process, in MiB."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


@contextmanager
def running_service(
    work_dir: Path,
    *,
    hms: bool,
    profile: Path | None = None,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> Iterator[Service]:
    """A service with an SQLite store in ``work_dir``, which is empty the first time. It is stopped when the block ends.

    With ``profile`` it runs under cProfile and writes its figures there when it stops. ``settings`` are environment
    variables. Raises ServiceStartError.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    log = work_dir / "service.log"
    start = ["-c", _SERVE] if profile is None else ["-m", "benchmarks.profiled_service", str(profile)]
    environment = os.environ | {
        "LAKEMARK_STORE": f"sqlite:///{work_dir}/lakemark.db",
        "LAKEMARK_WAREHOUSE": str(work_dir / "warehouse"),
        "LAKEMARK_GRPC_PORT": "0",
        "LAKEMARK_HMS_PORT": "0",
        "LAKEMARK_HMS_ENABLED": str(hms),
        "LAKEMARK_LOG_LEVEL": "warning",
        **settings,
    }
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, *start],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=sink,
            start_new_session=True,
        )
    try:
        yield _when_ready(process, log)
    finally:
        _stop(process)


def cpu_s(pid: int) -> float:
    """User and system time of a process, in seconds, to a hundredth (proc(5))."""
    # The second field, the command, may have spaces. It ends with the last parenthesis.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _when_ready(process: subprocess.Popen[bytes], log: Path) -> Service:
    assert process.stdout is not None
    match = _READY.match(process.stdout.readline().decode())
    if match is None:
        process.wait(STOP_TIMEOUT_S)
        raise ServiceStartError(f"the service did not start:\n{log.read_text(errors='replace')}")
    hms_port = int(match[2].rpartition(":")[2]) if match[2] else 0
    page = _PAGE.search(match[0])
    web_url = page[1] if page else ""
    return Service(pid=int(match[3]), grpc_address=match[1], hms_port=hms_port, web_url=web_url)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
