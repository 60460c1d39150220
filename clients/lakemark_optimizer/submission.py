"""Tasks by spark-submit, to YARN or Kubernetes: the command line is built, started, watched and, if need be, ended.

The program that it submits is ``lakemark_optimizer.program``. How the task ended is read from the instant, which the
service keeps, so that it does not matter where the driver ran.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lakemark import Client
from lakemark.client.optimization import OptimizationTask
from lakemark.client.writer import CONFLICT_REASON
from lakemark_core.errors import FailedPrecondition, Unavailable
from lakemark_optimizer.executor import Result

POLL_S: Final = 0.5
END_S: Final = 10.0
"""How long a program that was told to end may take before it is killed."""
_OUTPUT_CHARS: Final = 1_500


@dataclass(frozen=True, slots=True)
class Submission:
    """How programs are submitted. ``command``: spark-submit itself, with what always stands before its options."""

    server: str
    command: Sequence[str] = ("spark-submit",)
    master: str = "yarn"
    deploy_mode: str = "cluster"
    configuration: Mapping[str, str] = field(default_factory=dict)
    python_files: Sequence[str] = ()

    def command_line(self, task: OptimizationTask) -> list[str]:
        """The whole command line for a task."""
        options = ["--master", self.master, "--deploy-mode", self.deploy_mode]
        options += ["--name", f"lakemark-{task.kind}-{task.table}-{task.instant}"]
        for name, value in sorted(self.configuration.items()):
            options += ["--conf", f"{name}={value}"]
        if self.python_files:
            options += ["--py-files", ",".join(self.python_files)]
        program = str(Path(__file__).with_name("program.py"))
        return [*self.command, *options, program, self.server, json.dumps(dataclasses.asdict(task))]


class SubmitExecutor:
    """An ``Executor``."""

    name = "spark-submit"

    def __init__(self, client: Client, submission: Submission, poll_s: float = POLL_S) -> None:
        self._client, self._submission, self._poll_s = client, submission, poll_s

    def run(self, task: OptimizationTask, cancelled: threading.Event) -> Result:
        """As ``Executor`` says. Raises FailedPrecondition if the program cannot be started, or fails."""
        command = self._submission.command_line(task)
        with tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
            except OSError as error:
                raise FailedPrecondition(
                    f"{command[0]!r} cannot be started: {error}; name the program with --spark-submit"
                ) from error
            try:
                while (code := _wait(process, self._poll_s)) is None:
                    if cancelled.is_set():
                        raise FailedPrecondition("the task was given to another worker, and its program was ended")
            finally:
                _end(process)
            output.seek(0, 2)
            output.seek(max(0, output.tell() - _OUTPUT_CHARS))
            told = output.read().decode(errors="replace").strip()
        return self._result(task, code, told)

    def close(self) -> None:
        """Nothing is held: programs end with their tasks."""

    def _result(self, task: OptimizationTask, code: int, told: str) -> Result:
        instant = self._client.timeline.instant(task.table, task.instant)
        if instant.state == "completed":
            return Result("done", version=instant.version)
        if code == 0 and instant.state == "rolled_back":
            lost = instant.conflict_code or instant.rolled_back_reason.startswith(CONFLICT_REASON)
            return Result("conflicted" if lost else "nothing", instant.rolled_back_reason)
        raise Unavailable(
            f"the submitted program ended with {code}, and the instant is {instant.state.replace('_', ' ')}; its last "
            f"words: {told or 'none'}"
        )


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        if _wait(process, END_S) is None:
            process.kill()
            process.wait()
