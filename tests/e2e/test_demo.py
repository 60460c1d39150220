"""The demo itself, as ``scripts/demo`` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SECONDS_MAX = 600  # other workers may start Sparks meanwhile


@pytest.mark.timeout(SECONDS_MAX + 20)
def test_every_check_of_the_demo_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lakemark", "demo", "--directory", str(tmp_path / "demo")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    assert "checks passed" in done.stdout
