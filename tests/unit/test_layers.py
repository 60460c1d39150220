"""Imports point one way: each folder of the service imports only those that stand before it in a list."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVER = "lakemark_server"
HMS = "lakemark_hms"
WEB = "lakemark_web"

# From the ground up. What stands beside these folders (process, settings) may import all of them.
LAYERS = (
    "context",
    "metrics",
    "kv",
    "store",
    "events",
    "listeners",
    "access",
    "admission",
    "ownership",
    "transactions",
    "grants",
    "catalog",
    "mounts",
    "file_index",
    "timeline",
    "snapshots",
    "doors",
    "maintenance",
    "optimization",
    "sinks",
    "verify",
    "backup",
    "host",
    "rpc",
)

# package (by path) -> what it must not import beside what LAYERS says
FORBIDDEN = {
    "core": ["lakemark", SERVER, "lakemark_hms", "lakemark_spark", "lakemark_thrift"],
    "core/lakemark_core/types": ["lakemark_proto", "lakemark_core.expressions", "lakemark_core.evolution"],
    "core/lakemark_core/expressions": ["lakemark_proto"],
    "server": ["lakemark", "lakemark_thrift", "lakemark_spark", "pyspark"],
    "server/lakemark_server/kv": ["lakemark_proto"],
    "web": [
        "lakemark",
        f"{SERVER}.rpc",
        f"{SERVER}.process",
        "lakemark_hms",
        "lakemark_thrift",
        "lakemark_spark",
        "pyspark",
    ],
    "hms_bridge": ["lakemark", WEB, f"{SERVER}.rpc", f"{SERVER}.process", "lakemark_spark", "pyspark"],
    "hms_bridge/lakemark_hms/wire": [SERVER],
    "clients/lakemark/parquet": ["lakemark.client", "lakemark.reading"],
}
# Folders that start a service; all other code of the clients knows it by its protocol alone.
STARTS_A_SERVICE = ("clients/lakemark/cli/", "clients/lakemark/demo/")


def _imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _wrong(path: Path, forbidden: list[str]) -> list[str]:
    name = path.relative_to(ROOT).as_posix()
    return [
        f"{name} imports {one}"
        for one in sorted(_imports(path))
        if any(one == bad or one.startswith(bad + ".") for bad in forbidden)
    ]


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_packages_do_without_what_they_must_not_know(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    assert [line for path in files for line in _wrong(path, FORBIDDEN[folder])] == []


@pytest.mark.parametrize("layer", LAYERS)
def test_folders_of_the_service_import_only_those_before_them(layer: str) -> None:
    later = [f"{SERVER}.{name}" for name in (*LAYERS[LAYERS.index(layer) + 1 :], "process", "settings")]
    files = sorted((ROOT / "server" / SERVER / layer).rglob("*.py"))
    assert files
    assert [line for path in files for line in _wrong(path, [*later, HMS, WEB])] == []


def test_every_folder_of_the_service_has_its_layer() -> None:
    folders = {path.parent.name for path in (ROOT / "server" / SERVER).glob("*/__init__.py")}
    assert folders == set(LAYERS)


def test_clients_know_the_service_only_by_its_protocol() -> None:
    wrong = []
    for package in ("lakemark", "lakemark_optimizer", "lakemark_spark"):
        for path in sorted((ROOT / "clients" / package).rglob("*.py")):
            if not path.relative_to(ROOT).as_posix().startswith(STARTS_A_SERVICE):
                wrong += _wrong(path, [SERVER, HMS, WEB])
    assert wrong == []
