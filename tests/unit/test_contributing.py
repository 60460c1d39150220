"""CONTRIBUTING.md and the architecture page name files and functions that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "server" / "lakemark_server"
# Where a path without a folder may begin.
BASES = (
    ROOT,
    SERVER,
    *(SERVER / name for name in ("timeline", "file_index", "snapshots", "maintenance", "kv")),
    SERVER / "file_index" / "entries",
    SERVER / "file_index" / "planning",
    SERVER / "file_index" / "pruning",
    SERVER / "timeline" / "jobs",
    SERVER / "kv" / "sqlite",
    ROOT / "core",
    ROOT / "hms_bridge",
    ROOT / "hms_bridge" / "lakemark_hms",
    *(ROOT / "core" / "lakemark_core" / name for name in ("", "types", "expressions")),
)
PATH = re.compile(r"`((?:[\w.*]+/)*(?:\w+\.py|[\w*]+/))(?::([\w.]+))?`")
PAGES = ("CONTRIBUTING.md", "docs/architecture.md")


@cache
def _names(path: Path) -> frozenset[str]:
    """Classes, functions and ``Class.method`` of a module."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if hasattr(one, "name")}
    return frozenset(names)


def _stands(path: str, name: str) -> bool:
    files = [base / path for base in BASES if (base / path).exists()]
    return any(not name or name in _names(file) for file in files)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    named = [(path, name) for path, name in PATH.findall((ROOT / page).read_text()) if "NAME" not in path]
    assert len(named) > 20
    assert [f"{path}:{name}" for path, name in named if not _stands(path, name)] == []
