"""Runs docs/engines.md and docs/moving-tables.md: other engines and formats do what these pages say."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from benchmarks.peers import environment

from tests.integration.grpc_server import running_service

ROOT = Path(__file__).parents[2]
PACKAGES = ("build/generated", "clients", "core")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("page", "blocks_min"), [("engines.md", 8), ("moving-tables.md", 1)])
def test_the_recipes_of_the_page(tmp_path: Path, page: str, blocks_min: int) -> None:
    text = (ROOT / "docs" / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= blocks_min
    program = tmp_path / "recipes.py"
    program.write_text("\n".join(blocks))
    path = os.pathsep.join(str(ROOT / package) for package in PACKAGES)

    with running_service(tmp_path) as service:
        done = subprocess.run(
            [environment.interpreter("engines"), program],
            env={**os.environ, "PYTHONPATH": path, "LAKEMARK_SERVER": service.grpc_address},
            check=False,
            capture_output=True,
            text=True,
        )

    assert done.returncode == 0, done.stderr


def test_without_duckdb_the_error_says_what_to_install(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        done = subprocess.run(
            [
                ROOT / ".venv" / "bin" / "python",
                "-c",
                "import sys; sys.modules['duckdb'] = None\n"
                "import lakemark\n"
                f"client = lakemark.connect('{service.grpc_address}')\n"
                "client.databases.create('d')\n"
                "client.tables.create('d.t', 'id int')\n"
                "client.plan('d.t').to_duckdb()\n",
            ],
            check=False,
            capture_output=True,
            text=True,
        )

    assert "pip install duckdb" in done.stderr.splitlines()[-1]
