"""scripts/release on a repository of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.scripts.loaded import load_script

SCRIPT = Path(__file__).parents[3] / "scripts" / "release.py"
PROJECT = '[project]\nname = "lakemark"\nversion = "0.1.0"\n'
CHANGES = "# Changes\n\n## Unreleased\n\n* More.\n\n## 0.1.0 (2026-01-01)\n\n* First.\n"


@pytest.fixture
def script() -> ModuleType:
    return load_script("release")


def git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.org")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    packages(tmp_path, "mkdir -p dist && cp pyproject.toml dist/made")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "pyproject.toml", "CHANGELOG.md", "scripts")
    git(tmp_path, "commit", "--quiet", "--message", "All")
    return tmp_path


def packages(root: Path, line: str) -> None:
    path = root / "scripts" / "packages"
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_without_yes_it_only_tells(script: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["0.2.0"], root) == 0

    told = capsys.readouterr().out
    assert "v0.2.0" in told
    assert "with 1 lines" in told
    assert "--yes" in told
    assert (root / "pyproject.toml").read_text() == PROJECT
    assert (root / "CHANGELOG.md").read_text() == CHANGES
    assert git(root, "tag") == ""
    assert not (root / "dist").exists()


def test_a_release_has_version_section_packages_commit_and_tag(script: ModuleType, root: Path) -> None:
    assert script.main(["0.2.0", "--yes"], root) == 0

    assert 'version = "0.2.0"' in (root / "dist" / "made").read_text()
    changes = (root / "CHANGELOG.md").read_text()
    assert changes.startswith("# Changes\n\n## Unreleased\n\n## 0.2.0 (20")
    assert changes.index("## 0.2.0") < changes.index("* More.") < changes.index("## 0.1.0")
    assert git(root, "tag").split() == ["v0.2.0"]
    assert git(root, "log", "--format=%s").splitlines() == ["Release 0.2.0", "All"]
    assert git(root, "rev-parse", "v0.2.0^{commit}") == git(root, "rev-parse", "HEAD")
    assert git(root, "status", "--porcelain", "--untracked-files=no") == ""


@pytest.mark.parametrize(
    ("version", "why"),
    [("0.0.9", "before 0.1.0"), ("0.1.0", "has a section"), ("two", "no version"), ("0.2", None), ("v0.2.0", "write")],
)
def test_versions(
    script: ModuleType, root: Path, capsys: pytest.CaptureFixture[str], version: str, why: str | None
) -> None:
    assert script.main([version], root) == (why is not None)
    assert (why or "") in capsys.readouterr().err


def test_refused_with_changes_that_are_not_committed(
    script: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "CHANGELOG.md").write_text(CHANGES.replace("More", "Even more"))

    assert script.main(["0.2.0", "--yes"], root) == 1
    assert "not committed" in capsys.readouterr().err


def test_refused_with_nothing_to_release(script: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["0.2.0", "--yes"], root) == 0
    assert script.main(["0.3.0", "--yes"], root) == 1
    assert "nothing to release" in capsys.readouterr().err


def test_packages_that_fail_leave_nothing_behind(
    script: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packages(root, "echo no wheel today; exit 1")
    git(root, "commit", "--quiet", "--all", "--message", "Broken")

    assert script.main(["0.2.0", "--yes"], root) == 1
    assert "no wheel today" in capsys.readouterr().err
    assert (root / "pyproject.toml").read_text() == PROJECT
    assert (root / "CHANGELOG.md").read_text() == CHANGES
    assert git(root, "tag") == ""
