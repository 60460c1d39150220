"""Runs programs in environments of their own, such as ``.venv-peers``, made from their locks when needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
DATA: Final = REPOSITORY / "build" / "benchmarks"
_PEERS: Final = "peers"


class PeerError(RuntimeError):
    """The peer could not be installed, or its program failed. The message has its output."""


def measure(peer: str, task: str, data: Path, files: int, partitions: int) -> dict[str, Any]:
    """The result of ``benchmarks.peers.PEER`` for ``task``. Raises PeerError."""
    command = [str(interpreter()), "-m", f"benchmarks.peers.{peer}", task, "--data", str(data)]
    command += ["--files", str(files), "--partitions", str(partitions)]
    output = _run(command).splitlines()
    figures: dict[str, Any] = json.loads(output[-1])
    return figures


def interpreter(name: str = _PEERS) -> Path:
    """The Python of ``.venv-NAME``, which gets what ``scripts/locks/NAME.lock`` names if need be. Raises PeerError."""
    python, lock, installed = _python(name), _lock(name), _installed(name)
    if not is_installed(name):
        print(f"installing the {name} into .venv-{name}", file=sys.stderr, flush=True)
        uv = [str(REPOSITORY / ".venv-tools" / "bin" / "uv")]
        directory = str(python.parents[1])
        _run([*uv, "venv", "--quiet", "--no-config", "--clear", "--python", sys.executable, directory])
        _run([*uv, "pip", "sync", "--quiet", "--no-config", "--python", str(python), "--require-hashes", str(lock)])
        installed.write_bytes(lock.read_bytes())
    return python


def is_installed(name: str = _PEERS) -> bool:
    """Whether ``.venv-NAME`` matches the lock file."""
    installed = _installed(name)
    return installed.exists() and installed.read_bytes() == _lock(name).read_bytes()


def _python(name: str) -> Path:
    return REPOSITORY / f".venv-{name}" / "bin" / "python"


def _installed(name: str) -> Path:
    return REPOSITORY / f".venv-{name}" / "installed.lock"


def _lock(name: str) -> Path:
    return REPOSITORY / "scripts" / "locks" / f"{name}.lock"


def _run(command: list[str]) -> str:
    try:
        finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    except OSError as error:
        raise PeerError(f"{command[0]}: {error}") from error
    if finished.returncode:
        raise PeerError(f"{' '.join(command)} ended with {finished.returncode}:\n{finished.stderr[-2_000:]}")
    return finished.stdout
