"""The lock files: one version of each package everywhere, hashes for all, and no trace of their index."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
MAIN = REPOSITORY / "requirements.lock"
DERIVED = [
    REPOSITORY / "requirements-server.lock",
    REPOSITORY / "requirements-spark35.lock",
    REPOSITORY / "scripts" / "locks" / "build.lock",
]
ALONE = [
    REPOSITORY / "scripts" / "locks" / f"{name}.lock"
    for name in ("docs", "engines", "java", "packages", "peers", "postgres", "uv")
]
# What Spark 3.5 has in another version than Spark 4, on purpose.
OF_SPARK = {"pyspark", "py4j"}


def _entries(lock: Path) -> list[str]:
    """One string per pinned package: its requirement line and the hash lines under it."""
    return re.split(r"\n(?=[a-z0-9])", lock.read_text())[1:]


def _versions(lock: Path) -> set[tuple[str, str]]:
    return {(name, version) for entry in _entries(lock) for name, version in re.findall(r"^(\S+)==([^ ;]+)", entry)}


@pytest.mark.parametrize("lock", [MAIN, *DERIVED, *ALONE], ids=lambda lock: lock.name)
def test_every_package_is_pinned_with_hashes_and_no_host_is_named(lock: Path) -> None:
    entries = _entries(lock)

    assert entries
    assert [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []
    assert "://" not in lock.read_text()


@pytest.mark.parametrize("lock", DERIVED, ids=lambda lock: lock.name)
def test_derived_locks_agree_with_the_main_one(lock: Path) -> None:
    others = {(name, version) for name, version in _versions(lock) if name not in OF_SPARK}

    # setuptools and the like may be in one only; what both have must be the same.
    names = {name for name, _ in _versions(MAIN)}
    assert {pair for pair in others if pair[0] in names} <= _versions(MAIN)
