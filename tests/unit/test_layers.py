"""Imports point one way: rpc and hms_bridge -> domains -> kv; the client never needs the service."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVER = "lakemark_server"
DOMAINS = ("admission", "catalog", "timeline", "snapshot")

# package (by path prefix) -> what it must not import
RULES = {
    "server/lakemark_server/kv": [f"{SERVER}.{name}" for name in (*DOMAINS, "rpc", "keyspace", "process")]
    + ["lakemark_hms", "lakemark_proto", "lakemark_thrift"],
    "server/lakemark_server/admission": [f"{SERVER}.{name}" for name in ("catalog", "timeline", "snapshot", "rpc")],
    "server/lakemark_server/catalog": [f"{SERVER}.timeline", f"{SERVER}.snapshot", f"{SERVER}.rpc"],
    "server/lakemark_server/timeline": [f"{SERVER}.rpc", f"{SERVER}.process"],
    "server/lakemark_server/snapshot": [f"{SERVER}.rpc", f"{SERVER}.process"],
    "server/lakemark_server/backup": [f"{SERVER}.rpc", f"{SERVER}.process", "lakemark_hms"],
    "server/lakemark_server/rpc": ["lakemark_hms", f"{SERVER}.process"],
    "server/lakemark_server": ["lakemark_thrift", "lakemark_spark", "pyspark"],
    "hms_bridge/lakemark_hms": [f"{SERVER}.rpc", f"{SERVER}.process", "lakemark_spark", "pyspark"],
    "hms_bridge/lakemark_hms/wire": [SERVER],
    "clients/lakemark/types": [SERVER, "lakemark_proto", "lakemark.client", "lakemark.expressions"],
    "clients/lakemark/parquet": [SERVER, "lakemark.client", "lakemark.reading"],
    "clients/lakemark/evolution": [SERVER, "lakemark.client", "lakemark.reading"],
    "clients/lakemark/expressions": [SERVER, "lakemark_proto", "lakemark.client"],
}
# The composition root, and the commands that start it.
ALLOWED = {
    ("server/lakemark_server/process.py", "lakemark_hms"),
}
# The two domains that know each other, and their sub-packages: each imports only those before it.
ORDER = (
    "snapshot.arrow",
    "snapshot.at_hand",
    "snapshot.cache",
    "snapshot.entries",
    "snapshot.pages",
    "snapshot.parts",
    "snapshot.pruning",
    "snapshot.planning",
    "snapshot.base",
    "timeline.lineage",
    "timeline.records",
    "timeline.conflicts",
    "timeline.branching",
    "timeline.instants",
    "timeline.publishing",
    "timeline.batching",
    "timeline.references",
    "snapshot.reading",
    "snapshot.service",
    "snapshot.slices",
    "snapshot.folding",
    "timeline.cleaning",
    "timeline.comparing",
    "timeline.service",
)


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _forbidden(path: Path, forbidden: list[str]) -> list[str]:
    name = path.relative_to(ROOT).as_posix()
    return [
        f"{name} imports {one}"
        for one in sorted(_imports(path))
        for bad in forbidden
        if (one == bad or one.startswith(bad + ".")) and (name, bad) not in ALLOWED
    ]


@pytest.mark.parametrize("folder", RULES)
def test_layers_point_one_way(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    assert [line for path in files for line in _forbidden(path, RULES[folder])] == []


def test_the_client_never_imports_the_service_but_to_start_it() -> None:
    starts = ("clients/lakemark/cli/", "clients/lakemark/demo/")
    wrong = []
    for package in ("lakemark", "lakemark_spark"):
        for path in sorted((ROOT / "clients" / package).rglob("*.py")):
            if not path.relative_to(ROOT).as_posix().startswith(starts):
                wrong += _forbidden(path, [SERVER, "lakemark_hms"])
    assert wrong == []


def _place(name: str) -> int | None:
    """In ORDER, of a module of the two domains; None: of another one, or a domain as a whole."""
    domain, _, rest = name.removeprefix(f"{SERVER}.").partition(".")
    part = rest.partition(".")[0]
    if domain not in ("timeline", "snapshot") or part in ("", "__init__"):
        return None
    return ORDER.index(f"{domain}.{part}")


def test_parts_of_timeline_and_snapshot_import_only_those_before_them() -> None:
    wrong = []
    for domain in ("timeline", "snapshot"):
        for path in sorted((ROOT / "server" / SERVER / domain).rglob("*.py")):
            name = path.relative_to(ROOT / "server").with_suffix("").as_posix().replace("/", ".")
            own = _place(name)
            for one in sorted(_imports(path)):
                place = _place(one)
                if own is not None and place is not None and place > own:
                    wrong.append(f"{name} imports {one}")
    assert wrong == []
