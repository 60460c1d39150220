"""The benchmarks run, at sizes that say nothing about speed, and print the promised figures."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers import environment

REPOSITORY = Path(__file__).resolve().parents[2]
TINY = ["--files", "1000", "--partitions", "10"]
PLAN = {"files", "selective_warm_ms", "selective_cold_ms", "unclustered_warm_ms", "full_listing_s", "bytes_per_file"}
PLAN |= {"rss_mb", "empty_request_ms", "selective_vs_empty", "selective_new_vs_empty", "unclustered_vs_empty"}
PLAN |= {"unclustered_new_vs_empty"}
COMMIT = {"hot_table_commits_per_s", "ten_files_1m_vs_10k", "files_100k_s", "old_version_vs_latest"}
COMMIT |= {"deep_versions_ratio", "ten_files_1m_next_ms"}
DOORS = {"upsert_s", "upsert_vs_insert", "insert_vs_parquet", "small_insert_s", "small_insert_plain_s"}
FOLD = {
    "first_fold_s",
    "first_fold_bytes",
    "next_fold_s",
    "next_fold_bytes",
    "cold_before_ms",
    "cold_after_ms",
}
SPARK = {"append_vs_parquet", "scan_vs_parquet", "point_query_speedup", "upsert_vs_hudi", "upsert_vs_iceberg"}
SPARK |= {"small_upsert_s", "small_upsert_hudi_s", "small_upsert_iceberg_s", "small_upsert_overhead_s"}
SPARK |= {
    "mor_scan_vs_compacted",
    "compaction_vs_parquet",
    "mor_scan_vs_hudi",
    "mor_scan_vs_iceberg",
    "concurrent_vs_hudi",
}
SPARK |= {"write_amplification", "write_amplification_hudi", "write_amplification_iceberg"}
HMS = {"idle_slowdown", "list_10k_ms", "by_filter_100k_ms", "lookup_growth", "get_table_cpu_us", "names_s"}
HMS |= {"table_lookup_growth", "all_tables_s", "table_meta_s", "tables_by_pattern_s", "table_meta_by_pattern_s"}
PEERS = {"vs_pyiceberg", "vs_delta_rs", "vs_ducklake"}


def _run(name: str, *arguments: str, size: Sequence[str] = TINY) -> dict[str, Any]:
    command = [sys.executable, "-m", f"benchmarks.{name}", *size, "--json", *arguments]
    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr[-4_000:]
    figures: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return figures


def _positive(figures: dict[str, Any], keys: set[str]) -> set[str]:
    return {key for key in keys if isinstance(figures.get(key), int | float) and figures[key] > 0}


def test_plan() -> None:
    figures = _run("plan", "--no-peers")

    assert _positive(figures, PLAN) == PLAN
    assert figures["selective_files"] == 50
    assert figures["selective_vs_empty"] == pytest.approx(
        figures["selective_warm_ms"] / figures["empty_request_ms"], abs=0.02
    )
    assert (figures["runs"]["unclustered_warm_ms"], figures["runs"]["full_listing_s"]) == (50, 3)


@pytest.mark.slow  # a browser
def test_web() -> None:
    figures = _run("web", "--tables", "60", "--versions", "100")

    wanted = {"overview_10k_ms", "table_ms", "files_ms", "timeline_ms", "survey_s", "page_kb", "rss_mb"}
    assert _positive(figures, wanted) == wanted
    assert figures["axe_serious"] in (0, -1)  # -1: there is no browser


def test_soak() -> None:
    figures = _run("soak", "--minutes", "0.1")

    assert (figures["unexpected_errors"], figures["verify_problems"]) == (0, [])
    assert len(figures["samples"]) == 10
    done = {kind for sample in figures["samples"] for kind in sample["latency_ms"]}
    assert done >= {"commit", "upsert", "cluster", "plan, selective", "incremental", "branch merged", "get_table"}


@pytest.mark.slow  # a service and a worker, each for as long as a trend takes
def test_management() -> None:
    figures = _run(
        "management", "--minutes", "0.2", "--interval", "0.05", "--reader", "python", size=["--tables", "200"]
    )

    assert _positive(figures, {"managed_growth", "unmanaged_growth", "writer_slowdown", "files_ratio", "plans_per_s"})
    assert figures["plans"] == 2


@pytest.mark.slow  # an S3 server
def test_storage() -> None:
    figures = _run("storage", "--no-spark", "--rounds", "2")

    requests = {"PutObject": 1}
    assert (figures["append_requests"], figures["append_operations"], figures["plan_requests"]) == (1, requests, 0)
    assert _positive(figures, {"append_vs_local"})


@pytest.mark.slow  # two Sparks and a Hive Metastore
@pytest.mark.timeout(600)
def test_doors() -> None:
    figures = _run("doors", "--rounds", "1", "--statements", "16", size=["--rows", "10000"])

    assert _positive(figures, DOORS) == DOORS
    assert (figures["statements"], figures["statements_lost"], figures["statements_twice"]) == (16, 0, 0)


@pytest.mark.slow  # six Sparks, and the jars of Hudi and Iceberg
@pytest.mark.timeout(2_400)
def test_spark() -> None:
    parts = "files,points,mor,merges,concurrent,rewrites"
    figures = _run("spark", "--rounds", "1", "--parts", parts, size=["--rows", "20000"])

    assert _positive(figures, SPARK) == SPARK
    assert figures["aborts"] == 0


@pytest.mark.slow  # three services, one after the other
def test_commit() -> None:
    figures = _run("commit", "--no-peers", "--seconds", "0.5", "--versions", "200")

    assert _positive(figures, COMMIT) == COMMIT
    assert (figures["writers"], figures["client_retries"], figures["deep_versions"]) == (32, 0, 200)


@pytest.mark.slow  # a service is started nine times
def test_fold() -> None:
    figures = _run("fold", "--versions", "104")

    assert _positive(figures, FOLD) == FOLD
    assert figures["next_fold_versions"] == 256
    assert [found["files"] for found in figures["versions_of_one_file"].values()] == [104]


@pytest.mark.slow
@pytest.mark.skipif(not environment.is_installed(), reason="the peers are installed by scripts/bench plan")
def test_peers(tmp_path: Path) -> None:
    figures = _run("plan", "--data", str(tmp_path))
    appended = _run("commit", "--seconds", "0.5", "--versions", "200", "--data", str(tmp_path))

    assert _positive(figures, PEERS) == PEERS
    assert _positive(appended, {"vs_pyiceberg_append", "vs_pyiceberg_append_next"})
    assert [peer for peer, found in figures["peers"].items() if "error" in found] == []
    assert [peer for peer, found in appended["peers"].items() if "error" in found] == []


def test_hms() -> None:
    """Without the peer, which is a JVM."""
    size = ["--partitions", "2000", "--large", "1000", "--objects", "1200", "--tables", "1200", "--turn-s", "0.05"]
    figures = _run("hms", size=[*size, "--lookups", "30", "--idle", "50", "--no-peer"])

    assert _positive(figures, HMS) == HMS
    rates = figures["calls_per_s"].values()
    assert all(of["ours"] > 0 for of in rates)
