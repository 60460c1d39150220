"""What the peers' programs share: arguments, a clock, and the output. They run in ``.venv-peers``.

Each is called ``python -m benchmarks.peers.NAME plan|commit --data DIR --files N --partitions P``. The last line that
it prints is one JSON object. It keeps its generated metadata under DIR for the next run with the same sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.dataset import Dataset

HOT_WRITERS: Final = 4
HOT_SECONDS: Final = 5.0
APPENDED_FILES: Final = 10
APPEND_RUNS: Final = 10


@dataclass(frozen=True)
class Work:
    data: Path
    files: int
    partitions: int

    def generated(self, name: str, dataset: Dataset, generate: Callable[[Path, Dataset], None]) -> Path:
        """The directory with the peer's metadata of ``dataset``, generated unless an earlier run has done so."""
        place = self.data / f"{name}-{dataset.files}-{dataset.partitions}-{dataset.layout}"
        mark = place / "complete"
        if not mark.exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            began = time.perf_counter()
            generate(place, dataset)
            mark.touch()
            print(f"{place.name}: generated in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        return place

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory for the output of commits, on the same disk as the generated metadata."""
        with tempfile.TemporaryDirectory(prefix="scratch-", dir=self.data) as directory:
            yield Path(directory)


def main(peer: str, package: str, tasks: dict[str, Callable[[Work], dict[str, Any]]]) -> None:
    parser = argparse.ArgumentParser(prog=f"benchmarks.peers.{peer}")
    parser.add_argument("task", choices=sorted(tasks))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--files", type=int, required=True)
    parser.add_argument("--partitions", type=int, required=True)
    arguments = parser.parse_args()
    # Part of the name of caches: another version may write its metadata in another way.
    data = arguments.data.absolute() / f"{package}-{version(package)}"
    data.mkdir(parents=True, exist_ok=True)
    result = tasks[arguments.task](Work(data, arguments.files, arguments.partitions))
    print(json.dumps({"version": version(package), **result, "rss_mb": _rss_mb()}))


def milliseconds(run: Callable[[], object], runs: int) -> float:
    """The median of ``runs``."""
    return round(statistics.median(seconds(run) for _ in range(runs)) * 1e3, 3)


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def hot_commits(writer: Callable[[int], Callable[[], object]], refused: type[Exception]) -> dict[str, float]:
    """Commits per second of HOT_WRITERS threads on one table, and how many were refused and repeated.

    ``writer(number)`` is called once in each thread and returns a function that makes one commit. ``refused`` is the
    error of a commit that lost to another one.
    """
    commits, retries = [0] * HOT_WRITERS, [0] * HOT_WRITERS
    failures: list[Exception] = []
    started = threading.Barrier(HOT_WRITERS + 1)

    def work(number: int) -> None:
        try:
            commit = writer(number)
            started.wait()
            end = time.perf_counter() + HOT_SECONDS
            while time.perf_counter() < end:
                try:
                    commit()
                    commits[number] += 1
                except refused:
                    retries[number] += 1
        except Exception as error:
            failures.append(error)
            started.abort()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(HOT_WRITERS)]
    for thread in threads:
        thread.start()
    try:
        started.wait()
    except threading.BrokenBarrierError:
        raise failures[0] from None
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    if failures:
        raise failures[0]
    return {"writers": HOT_WRITERS, "commits_per_s": round(sum(commits) / took, 2), "client_retries": sum(retries)}


def _rss_mb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
