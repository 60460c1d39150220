"""Runs a peer's program in ``.venv-peers``, created from ``scripts/locks/peers.lock`` when it is first needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
DATA: Final = REPOSITORY / "build" / "benchmarks"
_ENVIRONMENT: Final = REPOSITORY / ".venv-peers"
_PYTHON: Final = _ENVIRONMENT / "bin" / "python"
_INSTALLED: Final = _ENVIRONMENT / "installed.lock"
_LOCK: Final = REPOSITORY / "scripts" / "locks" / "peers.lock"


class PeerError(RuntimeError):
    """The peer could not be installed, or its program failed. The message has its output."""


def measure(peer: str, task: str, data: Path, files: int, partitions: int) -> dict[str, Any]:
    """The result of ``benchmarks.peers.PEER`` for ``task``. Raises PeerError."""
    _install()
    command = [str(_PYTHON), "-m", f"benchmarks.peers.{peer}", task, "--data", str(data)]
    command += ["--files", str(files), "--partitions", str(partitions)]
    output = _run(command).splitlines()
    figures: dict[str, Any] = json.loads(output[-1])
    return figures


def interpreter() -> Path:
    """The Python that has the peers, which are installed first if need be. Raises PeerError."""
    _install()
    return _PYTHON


def is_installed() -> bool:
    """Whether ``.venv-peers`` matches the lock file."""
    return _INSTALLED.exists() and _INSTALLED.read_bytes() == _LOCK.read_bytes()


def _install() -> None:
    if is_installed():
        return
    print("installing the peers into .venv-peers", file=sys.stderr, flush=True)
    uv = [str(REPOSITORY / ".venv-tools" / "bin" / "uv")]
    _run([*uv, "venv", "--quiet", "--no-config", "--clear", "--python", sys.executable, str(_ENVIRONMENT)])
    _run([*uv, "pip", "sync", "--quiet", "--no-config", "--python", str(_PYTHON), "--require-hashes", str(_LOCK)])
    _INSTALLED.write_bytes(_LOCK.read_bytes())


def _run(command: list[str]) -> str:
    try:
        finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    except OSError as error:
        raise PeerError(f"{command[0]}: {error}") from error
    if finished.returncode:
        raise PeerError(f"{' '.join(command)} ended with {finished.returncode}:\n{finished.stderr[-2_000:]}")
    return finished.stdout
