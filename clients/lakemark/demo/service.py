"""A ``lakemark serve`` for the demo: a child process on free loopback ports."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from lakemark_core.errors import Unavailable

STOP_SECONDS_MAX = 20


@dataclass(slots=True)
class Served:
    """Starts on entering and stops on leaving, unless it is to stay. ``log`` is the file with its output."""

    directory: Path
    grpc: str = ""
    hms: str = ""
    log: Path = Path()
    stays: bool = False
    _process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.log = self.directory / "server.log"
        command = [sys.executable, "-m", "lakemark", "serve", "--optimizer", "--grpc-port", "0", "--hms-port", "0"]
        command += ["--store", f"sqlite:///{self.directory / 'lakemark.db'}"]
        command += ["--warehouse", str(self.directory / "warehouse")]
        with self.log.open("w") as log:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ,
                cwd=self.directory,
                start_new_session=True,  # an interrupt on the terminal is for the demo, which then ends it
            )
        self._process = process
        line = process.stdout.readline() if process.stdout else ""
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "grpc" not in words:
            process.wait()
            raise Unavailable(f"lakemark serve did not start; its log says:\n{self.log.read_text()[-2_000:]}")
        self.grpc, self.hms = words["grpc"], words["hms"]
        return self

    @property
    def pid(self) -> int:
        """0 before it was started."""
        return self._process.pid if self._process else 0

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        process = self._process
        if process is None or self.stays:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
