"""The cost and the savings of folds into base pages: ``scripts/bench fold [--json] [--files N] [--partitions P]``.

Tables are committed over gRPC by a service that does not fold. After it has stopped, the work of its background thread
is done and timed here, alone. First, the first base of tables with 256, 1,000 and 10,000 versions of one file each.
Then that of a table of a million files in 100 versions, each of which wrote to all partitions. Then the next base of
that table, after 256 more versions of one file each. The first plan after a start of the service is measured before and
after.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks import commit_hot, folds, machine
from benchmarks.dataset import Dataset
from benchmarks.lake import EMPTY, connected
from benchmarks.plan import FILES, PARTITIONS
from benchmarks.service import running_service

VERSIONS: Final = (256, 1_000, 10_000)
WRITERS: Final = 8
SECONDS_MAX: Final = 300.0
MORE_VERSIONS: Final = 256
NEVER: Final = {"LAKEMARK_FOLD_INTERVAL_S": "1000000"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench fold", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--files", type=int, default=FILES, help="how many files the large table has")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="in how many partitions")
    parser.add_argument("--versions", type=int, nargs="+", default=VERSIONS, help="of the tables of one file a version")
    arguments = parser.parse_args()
    described = machine.description()
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory:
        result = {
            **_small(Path(directory) / "small", arguments.versions),
            **_large(Path(directory) / "large", Dataset(arguments.files, arguments.partitions, scattered=True)),
        }
    described["load_1min_after"] = round(os.getloadavg()[0], 2)
    for name, value in result.items():
        print(f"{name}: {value}", flush=True)
    if arguments.json:
        versions = machine.versions("lakemark", "grpcio", "pyarrow", "numpy")
        print(json.dumps({"benchmark": "fold", "machine": described, "versions": versions, **result}))


def _small(work_dir: Path, counts: list[int]) -> dict[str, Any]:
    """Tables of one file in each version, by number of versions. Each is folded once."""
    with running_service(work_dir, hms=False, settings=NEVER) as service, connected(service) as lake:
        lake.create(EMPTY)
        for count in counts:
            commit_hot.run(service, f"hot_{count}", WRITERS, SECONDS_MAX, count)
    before = {count: _cold_ms(work_dir, f"hot_{count}", "day = 50") for count in counts}
    result = {str(count): asdict(folds.fold(work_dir, f"hot_{count}")) for count in counts}
    for count in counts:
        after_ms = _cold_ms(work_dir, f"hot_{count}", "day = 50")
        result[str(count)] |= {"cold_before_ms": before[count], "cold_after_ms": after_ms}
    return {"versions_of_one_file": result}


def _large(work_dir: Path, dataset: Dataset) -> dict[str, Any]:
    with running_service(work_dir, hms=False, settings=NEVER) as service, connected(service) as lake:
        lake.create(EMPTY)
        lake.fill("large", dataset)
    sql = dataset.selection.sql
    before_ms = _cold_ms(work_dir, "large", sql)
    first = folds.fold(work_dir, "large")
    after_ms = _cold_ms(work_dir, "large", sql)
    with running_service(work_dir, hms=False, settings=NEVER) as service, connected(service) as lake:
        for number in range(MORE_VERSIONS):
            lake.append("large", dataset.later(number, 1))
    more_ms = _cold_ms(work_dir, "large", sql)
    following = folds.fold(work_dir, "large")
    assert following.files == dataset.files + MORE_VERSIONS
    return {
        "first_fold_s": first.seconds,
        "first_fold_bytes": first.bytes,
        "next_fold_s": following.seconds,
        "next_fold_versions": following.version - first.version,
        "next_fold_bytes": following.bytes,
        "cold_before_ms": before_ms,
        "cold_after_ms": after_ms,
        "cold_next_before_ms": more_ms,
        "cold_next_after_ms": _cold_ms(work_dir, "large", sql),
    }


def _cold_ms(work_dir: Path, table: str, sql: str) -> float:
    """The first plan of the table after a start of the service."""
    with running_service(work_dir, hms=False, settings=NEVER) as service, connected(service) as lake:
        return lake.cold_plan_ms(table, sql)


if __name__ == "__main__":
    main()
