"""The server image cannot be built in the tests, so mistakes that can be found without an engine are checked here."""

import re
import shlex
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
DOCKERIGNORE = (REPOSITORY / ".dockerignore").read_text().splitlines()


def _copied() -> list[str]:
    """The sources of every COPY from the build context."""
    lines = (shlex.split(line) for line in DOCKERFILE.splitlines() if line.startswith("COPY "))
    return [source for line in lines if not line[1].startswith("--from") for source in line[1:-1]]


@pytest.mark.parametrize("source", _copied())
def test_what_is_copied_exists_and_is_not_ignored(source: str) -> None:
    assert (REPOSITORY / source).exists()
    assert f"!{source.split('/', maxsplit=1)[0]}" in DOCKERIGNORE


def test_every_requirement_file_is_locked_by_hash() -> None:
    installs = re.findall(r"pip install [^&\n]*-r (\S+)", DOCKERFILE)

    assert [Path(lock).name for lock in installs] == ["build.lock", "requirements-server.lock"]
    assert DOCKERFILE.count("--require-hashes") == len(installs)


def test_it_does_not_run_as_root() -> None:
    stage = DOCKERFILE.rsplit("FROM ", 1)[1]

    assert stage.index("\nUSER 10001\n") < stage.index("\nENTRYPOINT ")
