"""Ratios to peers: the promised figures have them, and a peer that could not be measured has none."""

import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import commit, plan
from benchmarks.dataset import Dataset
from benchmarks.peers import environment

DATASET = Dataset(1_000, 10)


def _peers(monkeypatch: pytest.MonkeyPatch, figures: dict[str, Any]) -> None:
    """The answers of all peers, where DuckLake could not be measured."""

    def measure(peer: str, task: str, data: Path, files: int, partitions: int) -> dict[str, Any]:
        assert (task in {"plan", "commit"}, files, partitions) == (True, 1_000, 10)
        if peer == "ducklake":
            raise environment.PeerError("no extension")
        return figures

    monkeypatch.setattr(environment, "measure", measure)


def test_plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _peers(monkeypatch, {"selective_loaded_ms": 300.0, "selective_scattered_ms": 8_000.0, "full_listing_s": 50.0})
    ours = {"selective_new_ms": 2.0, "selective_scattered_ms": 4.0, "full_listing_s": 0.5}

    found = plan.measure_peers(tmp_path, DATASET, ours)

    assert (found["vs_pyiceberg"], found["vs_pyiceberg_scattered"], found["vs_pyiceberg_listing"]) == (150, 2_000, 100)
    assert found["vs_delta_rs"] == 150
    assert (found["vs_ducklake"], found["peers"]["ducklake"]) == (None, {"error": "no extension"})


def test_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _peers(monkeypatch, {"append_ms": 200.0})

    found = commit.measure_peers(tmp_path, DATASET, 10.0, 8.0)

    assert (found["vs_pyiceberg_append"], found["vs_pyiceberg_append_next"]) == (20, 25)
    assert found["peers"]["ducklake"] == {"error": "no extension"}


def test_commit_without_pyiceberg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _peers(monkeypatch, {"error": "it failed"})

    found = commit.measure_peers(tmp_path, DATASET, 10.0, 8.0)

    assert found["vs_pyiceberg_append"] is found["vs_pyiceberg_append_next"] is None


def test_a_program_that_fails_or_is_missing_is_an_error_of_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "interpreter", lambda: Path(sys.executable))
    with pytest.raises(environment.PeerError, match="No module named"):
        environment.measure("nothing", "plan", Path("unused"), 1_000, 10)

    monkeypatch.setattr(environment, "interpreter", lambda: Path("/nowhere/python"))
    with pytest.raises(environment.PeerError, match="nowhere"):
        environment.measure("nothing", "plan", Path("unused"), 1_000, 10)
