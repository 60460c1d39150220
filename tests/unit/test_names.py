"""Names and documentation that can be checked by reading the tree: modules, classes, locals, docstrings, references."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "server", "hms_bridge", "clients", "web")

# Modules and folders are named by nouns. These are nouns that end like a verb.
NOUNS = {
    "cleaning": "Hudi's name for ending old versions",
    "housekeeping": "the background work of a process",
    "opening": "the opening of an instant",
    "planning": "query planning",
    "pruning": "the established name for skipping files and partitions",
    "reading": "what a reader does with a plan; the part of a batch that only reads",
    "ring": "a buffer that keeps the latest things",
    "staging": "the staging of files before a commit",
    "widening": "the established name for changing a type to a wider one",
}

# A class name says what the class is, wherever it is read. These are the same idea at two levels, or a term of the
# field with two meanings that never meet in one module.
SHARED_CLASS_NAMES = {
    "ChangeLog": "the changes of a table's versions, and the log of changes in FoundationDB",
    "Plan": "a plan of files to read, and a plan of files to clean",
    "Snapshot": "the files of a version, and a snapshot of a key-value store",
    "StoreFormatUnknown": "the error of the service, and that of a backend",
    "Window": "a sliding window of seconds, and one of transactions",
}

# "found" says only that there was a search: a name should say what was found. These folders do without it.
NO_FOUND = (
    "clients/lakemark/cli",
    "clients/lakemark/client",
    "clients/lakemark/demo",
    "hms_bridge",
    "server",
    "web",
)

# Here every public function and class has a docstring.
DOCUMENTED = (
    "clients/lakemark/arguments.py",
    "server/lakemark_server/admission",
    "server/lakemark_server/catalog",
    "server/lakemark_server/context",
    "server/lakemark_server/file_index",
    "server/lakemark_server/grants",
    "server/lakemark_server/maintenance",
    "server/lakemark_server/optimization",
    "server/lakemark_server/rpc/comparisons.py",
    "server/lakemark_server/rpc/files.py",
    "server/lakemark_server/rpc/plans.py",
    "server/lakemark_server/rpc/snapshot.py",
    "server/lakemark_server/sinks",
    "server/lakemark_server/snapshots",
    "server/lakemark_server/store",
    "server/lakemark_server/timeline/references.py",
    "server/lakemark_server/timeline/savepoints.py",
    "server/lakemark_server/transactions",
    "server/lakemark_server/verify",
    "web",
)

# Pages outside the repository, which its readers do not have.
OUTSIDE = re.compile(r"\b(DESIGN|MISSION)\b[,.:]")
TEXTS = (".py", ".proto", ".thrift", ".md", ".sh", ".toml", ".yml", "")


def _modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        place = ROOT / folder
        yield from [place] if place.is_file() else sorted(place.rglob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _definitions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """The public functions and classes of a module."""
    for node in ast.parse(path.read_text()).body:
        definition = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if definition and not node.name.startswith("_"):
            yield node


def test_modules_are_named_by_nouns() -> None:
    named = {
        part: _name(path) for path in _modules(*PACKAGES) for part in path.relative_to(ROOT).with_suffix("").parts[2:]
    }
    gerunds = {part for part in named if part.endswith("ing") and part not in {"string"}}
    assert sorted(gerunds - NOUNS.keys()) == []
    assert sorted(NOUNS.keys() - gerunds) == []


def test_a_class_name_has_one_meaning_in_the_service() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in _modules("server", "web"):
        for node in _definitions(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(_name(path))
    shared = {name: modules for name, modules in places.items() if len(modules) > 1}
    assert {name: modules for name, modules in shared.items() if name not in SHARED_CLASS_NAMES} == {}
    assert sorted(SHARED_CLASS_NAMES.keys() - shared.keys()) == []


def test_locals_say_what_was_found() -> None:
    wrong = {
        f"{_name(path)}:{node.lineno}"
        for path in _modules(*NO_FOUND)
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id == "found" and isinstance(node.ctx, ast.Store)
    }
    assert sorted(wrong) == []


def test_public_functions_and_classes_have_docstrings() -> None:
    wrong = [
        f"{_name(path)}:{node.lineno} {node.name}"
        for path in _modules(*DOCUMENTED)
        for node in _definitions(path)
        if ast.get_docstring(node) is None
    ]
    assert wrong == []


def test_nothing_refers_to_pages_outside_the_repository() -> None:
    folders = ("benchmarks", "docs", "protos", "scripts", "tests", "thrift", *PACKAGES)
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in TEXTS]
    wrong = [
        f"{_name(path)}:{number}"
        for path in files
        if path.is_file() and path != Path(__file__)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if OUTSIDE.search(line)
    ]
    assert wrong == []
