"""A release: version, changelog section, packages, commit and tag. ``scripts/release`` runs it."""

from __future__ import annotations

import argparse
import datetime as dt
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

ROOT: Final = Path(__file__).resolve().parents[1]
_VERSION: Final = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)
_UNRELEASED: Final = "## Unreleased\n"


class ReleaseRefused(Exception):
    """The release cannot be made: the message says why, and what to do."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """The exit code: 0, or 1 if the release is refused."""
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    parser.add_argument("version", help="such as 0.2.0 or 0.2.0rc1")
    parser.add_argument("--yes", action="store_true", help="do it: without this, nothing is changed")
    options = parser.parse_args(arguments)
    try:
        release(options.version, root, dt.datetime.now(dt.UTC).date(), do=options.yes)
    except ReleaseRefused as refusal:
        sys.stderr.write(f"scripts/release: {refusal}\n")
        return 1
    return 0


def release(version: str, root: Path, today: dt.date, *, do: bool) -> None:
    """Says what a release of ``version`` changes, and with ``do`` changes it. Raises ReleaseRefused."""
    project, changes = root / "pyproject.toml", root / "CHANGELOG.md"
    new_project = with_version(project.read_text(), version)
    new_changes = with_section(changes.read_text(), version, today)
    tag = f"v{version}"
    _require_clean(root, tag)
    print(f"version {version} in pyproject.toml")
    print(f'section "{_heading(version, today)}" in CHANGELOG.md, with {_lines(changes.read_text())} lines')
    print(f"packages in dist/, built and checked by scripts/packages\ncommit and tag {tag}")
    if not do:
        print("nothing was changed: repeat it with --yes")
        return
    before = project.read_text(), changes.read_text()
    try:
        project.write_text(new_project)
        changes.write_text(new_changes)
        _run(root, "scripts/packages")
    except BaseException:
        project.write_text(before[0])
        changes.write_text(before[1])
        raise
    _run(root, "git", "commit", "--quiet", "--message", f"Release {version}", "--", "pyproject.toml", "CHANGELOG.md")
    _run(root, "git", "tag", "--annotate", tag, "--message", f"Lakemark {version}")
    print(f"done. To publish it:\n  git push origin HEAD {tag}\n  .venv-packages/bin/twine upload dist/*")


def with_version(project: str, version: str) -> str:
    """The text of pyproject.toml with another version. Raises ReleaseRefused if it is none, or no later one."""
    try:
        wanted = Version(version)
    except InvalidVersion as error:
        raise ReleaseRefused(f"{version!r} is no version: give one such as 0.2.0") from error
    if str(wanted) != version:
        raise ReleaseRefused(f"write {version!r} as {wanted}")
    match = _VERSION.search(project)
    if match is None:
        raise ReleaseRefused('pyproject.toml has no line version = "…"')
    if wanted < Version(match[1]):
        raise ReleaseRefused(f"{version} is before {match[1]}, which pyproject.toml has")
    return _VERSION.sub(f'version = "{version}"', project, count=1)


def with_section(changes: str, version: str, today: dt.date) -> str:
    """The changelog with its unreleased lines as the section of ``version``, and a new empty section above.

    Raises ReleaseRefused if there is nothing to release, or the version has a section.
    """
    if re.search(rf"^## {re.escape(version)}(\s|$)", changes, re.MULTILINE):
        raise ReleaseRefused(f"CHANGELOG.md has a section {version}")
    if not _lines(changes):
        raise ReleaseRefused('CHANGELOG.md has nothing under "## Unreleased": there is nothing to release')
    return changes.replace(_UNRELEASED, f"{_UNRELEASED}\n{_heading(version, today)}\n", 1)


def _heading(version: str, today: dt.date) -> str:
    return f"## {version} ({today.isoformat()})"


def _lines(changes: str) -> int:
    """How many lines of text are under "Unreleased"."""
    if _UNRELEASED not in changes:
        return 0
    section = re.split(r"^## ", changes.split(_UNRELEASED, 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    return sum(bool(line.strip()) for line in section.splitlines())


def _require_clean(root: Path, tag: str) -> None:
    if _run(root, "git", "status", "--porcelain", "--untracked-files=no"):
        raise ReleaseRefused("there are changes that are not committed: commit them, or take them back")
    if _run(root, "git", "tag", "--list", tag):
        raise ReleaseRefused(f"the tag {tag} is there already")


def _run(root: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    if done.returncode:
        raise ReleaseRefused(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
