"""How fast files are planned: ``scripts/bench plan [--json] [--files N]``.

A table of a million files (entries only, no data) in 1,000 partitions with statistics on 5 columns is committed over
gRPC. Then plans are asked for over gRPC: a selective predicate on a partition and a clustered column; one on columns by
which no page can be skipped; all files, decoded by the client; and the selective one as the first after a restart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import machine
from benchmarks.service import Service, running_service
from lakemark_proto.v1 import catalog_pb2, snapshot_pb2, timeline_pb2, types_pb2
from lakemark_proto.v1.catalog_pb2_grpc import CatalogServiceStub
from lakemark_proto.v1.snapshot_pb2_grpc import SnapshotServiceStub
from lakemark_proto.v1.timeline_pb2_grpc import TimelineServiceStub

FILES: Final = 1_000_000
COMMIT_FILES: Final = 10_000
PARTITIONS: Final = 1_000
RUNS: Final = 50
MESSAGE_BYTES_MAX: Final = 64 << 20
TABLE: Final = types_pb2.TableName(database="default", table="planned")
COLUMNS: Final = (("id", "bigint"), ("at", "timestamp"), ("amount", "double"), ("code", "int"), ("name", "string"))
# 50 files of a million; 20 of them.
SELECTIVE: Final = "p = 500 AND id >= {low} AND id < {high}"
UNCLUSTERED: Final = "code = 123456 AND amount > 900"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench plan", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--files", type=int, default=FILES, help="how many files the table has")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory:
        result = _measure(Path(directory), arguments.files)
    for name, value in result.items():
        print(f"{name}: {value}")
    if arguments.json:
        print(json.dumps(result))


def _measure(work_dir: Path, files: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "benchmark": "plan",
        "machine": machine.description(),
        "versions": machine.versions("lakemark", "grpcio", "pyarrow", "numpy"),
        "files": files,
    }
    selective = SELECTIVE.format(low=files * 500, high=files * 500 + 50_000)
    with running_service(work_dir, hms=False) as service, _channel(service) as channel:
        start = time.perf_counter()
        _fill(channel, files)
        result["commit_files_per_s"] = round(files / (time.perf_counter() - start))
    result["bytes_per_file"] = round(sum(path.stat().st_size for path in work_dir.glob("lakemark.db*")) / files, 1)
    with running_service(work_dir, hms=False) as service, _channel(service) as channel:
        stub = SnapshotServiceStub(channel)
        _plan(stub, "p = 1 AND id < 0", table="warm")
        result["selective_cold_ms"] = _milliseconds(stub, selective, 1)
        result["selective_warm_ms"] = _milliseconds(stub, selective, RUNS)
        result["selective_files"] = _plan(stub, selective).summary.files_planned
        _plan(stub, UNCLUSTERED)
        result["unclustered_warm_ms"] = _milliseconds(stub, UNCLUSTERED, RUNS)
        result["unclustered_files"] = _plan(stub, UNCLUSTERED).summary.files_planned
        start = time.perf_counter()
        assert _list_all(stub) == files
        result["full_listing_s"] = round(time.perf_counter() - start, 3)
        result["rss_mb"] = _rss_mb(service.pid)
    return result


def _channel(service: Service) -> grpc.Channel:
    limits = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)]
    return grpc.insecure_channel(service.grpc_address, options=limits)


def _fill(channel: grpc.Channel, files: int) -> None:
    columns = [
        types_pb2.Column(name=name, type=types_pb2.Type(primitive=kind)) for name, kind in (*COLUMNS, ("p", "int"))
    ]
    catalog = CatalogServiceStub(channel)
    schema = types_pb2.Schema(columns=columns, partition_columns=["p"])
    catalog.CreateTable(catalog_pb2.CreateTableRequest(name=TABLE, schema=schema))
    small = types_pb2.TableName(database="default", table="warm")
    catalog.CreateTable(catalog_pb2.CreateTableRequest(name=small, schema=schema))
    timeline = TimelineServiceStub(channel)
    for number, first in enumerate(range(0, files, COMMIT_FILES)):
        opened = timeline.OpenInstant(
            timeline_pb2.OpenInstantRequest(table=TABLE, operation=timeline_pb2.APPEND, start=True)
        )
        entries = _entries(opened.instant, number, first, min(COMMIT_FILES, files - first), files)
        timeline.Commit(
            timeline_pb2.CommitRequest(table=TABLE, instant=opened.instant, added=types_pb2.DataFiles(arrow=entries))
        )


def _entries(instant: int, number: int, first: int, count: int, files: int) -> bytes:
    """Files that hold 1,000 ids each, in order; other columns are random."""
    random = np.random.default_rng(number)
    places = np.arange(first, first + count)
    partition = places * PARTITIONS // files
    groups = [f"{a:016x}{b:016x}" for a, b in random.integers(0, 1 << 62, (count, 2)).tolist()]
    paths = [
        f"{instant}/p={p}/{group}/part-00000.snappy.parquet"
        for p, group in zip(partition.tolist(), groups, strict=True)
    ]
    low = random.uniform(0, 900, count)
    codes = random.integers(0, 1_000_000, count).astype(np.int32)
    hour = 3_600_000_000
    nothing = pa.array(np.zeros(count, np.int64))
    table = pa.table(
        {
            "path": paths,
            "size_bytes": random.integers(1 << 20, 1 << 28, count),
            "row_count": np.full(count, 1_000),
            "partition": [f"p={p}" for p in partition.tolist()],
            "min.1": places * 1_000,
            "max.1": places * 1_000 + 999,
            "null_count.1": nothing,
            "min.2": pa.array(places * hour, pa.timestamp("us", "UTC")),
            "max.2": pa.array((places + 1) * hour, pa.timestamp("us", "UTC")),
            "null_count.2": nothing,
            "min.3": low,
            "max.3": low + random.uniform(0, 100, count),
            "null_count.3": nothing,
            "nan_count.3": nothing,
            "min.4": codes,
            "max.4": codes + 200,
            "null_count.4": nothing,
            "min.5": [group[:8] for group in groups],
            "max.5": [f"{group[:7]}g" for group in groups],
            "null_count.5": nothing,
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _plan(stub: SnapshotServiceStub, sql: str, *, table: str = TABLE.table) -> snapshot_pb2.PlanFilesResponse:
    name = types_pb2.TableName(database="default", table=table)
    return stub.PlanFiles(snapshot_pb2.PlanFilesRequest(table=name, predicate=types_pb2.Predicate(sql=sql)))


def _milliseconds(stub: SnapshotServiceStub, sql: str, runs: int) -> float:
    """Median round trip."""
    took = []
    for _ in range(runs):
        start = time.perf_counter()
        _plan(stub, sql)
        took.append((time.perf_counter() - start) * 1_000)
    return round(statistics.median(took), 3)


def _list_all(stub: SnapshotServiceStub) -> int:
    """Pages through all files, decoded into Arrow columns; how many there are."""
    request = snapshot_pb2.PlanFilesRequest(table=TABLE, page_size=100_000)
    found = 0
    while True:
        page = stub.PlanFiles(request)
        with pa.ipc.open_stream(page.files.arrow) as reader:
            table = reader.read_all()
        found += table.num_rows
        assert pc.sum(table.column("row_count")).as_py() == table.num_rows * 1_000
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return found


def _rss_mb(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


if __name__ == "__main__":
    main()
