"""Runs docs/engines.md and docs/moving-tables.md: other engines and formats do what these pages say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests import engines
from tests.integration.grpc_server import running_service

ROOT = Path(__file__).parents[2]
SETUP = "A table to read"


def programs_of(page: str) -> dict[str, str]:
    """The Python of each section of a page by its title; "" before the first."""
    _, *parts = re.split(r"^## (.*)$", "\n## \n" + (ROOT / "docs" / page).read_text(), flags=re.MULTILINE)
    blocks = {
        title: re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    }
    return {title: "\n".join(programs) for title, programs in blocks.items() if programs}


RECIPES = programs_of("engines.md")


def test_there_is_a_recipe_for_each_engine() -> None:
    assert RECIPES.keys() >= {SETUP, "DuckDB", "Polars", "pandas", "pyarrow", "Dask"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", [title for title in RECIPES if title != SETUP])
def test_the_recipe_of_an_engine(tmp_path: Path, engine: str) -> None:
    run_program(tmp_path, RECIPES[SETUP] + RECIPES[engine])


@pytest.mark.timeout(600)
def test_the_page_about_other_formats(tmp_path: Path) -> None:
    run_program(tmp_path, "\n".join(programs_of("moving-tables.md").values()))


def run_program(directory: Path, text: str) -> None:
    """Runs it against a new service."""
    program = directory / "recipes.py"
    program.write_text(text)

    with running_service(directory) as service:
        done = subprocess.run(
            [engines.interpreter(), program],
            env={**engines.variables(), "LAKEMARK_SERVER": service.grpc_address},
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
