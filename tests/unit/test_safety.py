"""What the packages do without: anything that runs what it reads."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "server", "hms_bridge", "clients")
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
CALLS = {"eval", "exec", "compile", "__import__"}


def _uses(path: Path) -> set[str]:
    uses: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            uses |= {alias.name.partition(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and node.module:
            uses |= {node.module.partition(".")[0]} & MODULES
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            uses |= {node.func.id} & CALLS
    return uses


def test_nothing_that_is_read_is_run() -> None:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(files) > 100
    wrong = {path.relative_to(ROOT).as_posix(): uses for path in files if (uses := _uses(path))}
    assert wrong == {}
