"""The demo itself, as ``scripts/demo`` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.spark_runner import interpreter, java_options

pytestmark = pytest.mark.spark

SECONDS_MAX = 600  # other workers may start Sparks meanwhile


@pytest.mark.timeout(SECONDS_MAX + 20)
def test_every_check_of_the_demo_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lakemark", "demo", "--directory", str(tmp_path / "demo")]
    environment = os.environ | {"JAVA_TOOL_OPTIONS": java_options(interpreter("4.3"))}
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=SECONDS_MAX)
    failed = [line for line in done.stdout.splitlines() if "✗" in line]
    assert done.returncode == 0, "\n".join([*failed, done.stdout[-2_000:], done.stderr[-2_000:]])
    assert "checks passed" in done.stdout
