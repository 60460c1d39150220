"""The documentation site builds, and every link in it leads somewhere."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_the_site_builds() -> None:
    done = subprocess.run([ROOT / "scripts" / "docs"], check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "to_duckdb" in (ROOT / "build" / "site" / "reference" / "python.html").read_text()
    assert (ROOT / "build" / "site" / "search.js").exists()
