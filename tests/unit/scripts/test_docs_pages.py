"""The pages of the documentation site: links become those of the site, and every page has its place."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.unit.scripts.loaded import load_script

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("docs_pages")


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("docs/files.md", "[a](schemas.md#b)", "[a](schemas.md#b)"),
        ("docs/storage.md", "[a](../CONTRIBUTING.md)", "[a](contributing.md)"),
        ("CONTRIBUTING.md", "[a](docs/architecture.md)", "[a](architecture.md)"),
        ("docs/decisions/0003-x.md", "[a](../files.md)", "[a](../files.md)"),
        ("docs/events.md", "[a](../protos/lakemark/v1/events.proto)", "[a](reference/grpc.md#events)"),
        ("docs/keys.md", "[a](../server/lakemark_server/process.py)", "`server/lakemark_server/process.py`"),
        ("docs/files.md", "[a](https://example.org/x.md)", "[a](https://example.org/x.md)"),
        ("docs/files.md", "[a](nowhere.md)", "[a](nowhere.md)"),
        ("docs/files.md", "[a](#b)", "[a](#b)"),
    ],
)
def test_links(script: ModuleType, page: str, text: str, expected: str) -> None:
    assert script.with_links(f"x {text} y", page) == f"x {expected} y"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs"])
def test_links_lead_somewhere_in_the_repository_too(script: ModuleType, page: str) -> None:
    """The build of the site checks the links of the site; these are those that a reader of the repository follows."""
    listed = sorted((ROOT / page).rglob("*.md")) if page == "docs" else [ROOT / page]
    dead = [
        f"{path.relative_to(ROOT)}: {link['target']}"
        for path in listed
        for link in script._LINK.finditer(path.read_text())
        if link["target"] and "://" not in link["target"] and not (path.parent / link["target"]).exists()
    ]
    assert dead == []


def _pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for part in nav.values():
            yield from _pages(part)
    else:
        for part in nav:
            yield from _pages(part)


def test_every_page_is_in_the_navigation(script: ModuleType) -> None:
    listed = set(_pages(tomllib.loads((ROOT / "docs" / "zensical.toml").read_text())["project"]["nav"]))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | set(script.FROM_ROOT.values())

    assert listed == pages | {f"reference/{name}" for name in script.generated()} | {"decisions/index.md"}


def test_generated_pages_have_what_the_code_has(script: ModuleType) -> None:
    pages = script.generated()

    assert "## lakemark tables undrop" in pages["cli.md"]
    assert "`LAKEMARK_GRPC_PORT`" in pages["settings.md"]
    assert "`commit_conflict`" in pages["errors.md"]
    assert "### TimelineService" in pages["grpc.md"]
    assert "| `get_table` | read |" in pages["hms-methods.md"]
    assert "::: lakemark.client.tables.Tables" in pages["python.md"]
    assert "::: lakemark_spark.upsert" in pages["pyspark.md"]
