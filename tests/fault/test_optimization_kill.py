"""Kill -9 of the planning service and of workers, with a stream of commits: the rows stay, and the work gets done."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark import Client, DataFile, connect
from lakemark_core.errors import LakemarkError
from lakemark_core.storage import open_location
from lakemark_server.kv import open_store
from lakemark_server.verify import check_files, verify
from tests.fault.killable import Killable
from tests.fault.killers import Habits, Killer
from tests.lengths import long
from tests.stores import store_url

SECONDS = long(45)
SETTLE_S = 240.0
ROWS = 20
TABLE = "default.t"


class Appends:
    """A table without a key. Each batch has rows of its own."""

    properties: ClassVar = {"lakemark.optimize.minor.fragments": "4"}

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}

    def write(self, client: Client, number: int) -> None:
        with client.begin(TABLE, request_id=f"batch-{number}") as writer:
            if not writer.committed:
                writer.write(pa.table({"id": range(number * ROWS, (number + 1) * ROWS), "v": [number] * ROWS}))
                writer.commit()
        self.rows |= dict.fromkeys(range(number * ROWS, (number + 1) * ROWS), number)


class Upserts:
    """A table with a key and one bucket. Each batch is a delta, with new rows and with rows that were there."""

    properties: ClassVar = {
        "lakemark.primary-key": "id",
        "lakemark.bucket.count": "1",
        "lakemark.write.mode": "merge-on-read",
        "lakemark.optimize.minor.delta-commits": "4",
    }

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}

    def write(self, client: Client, number: int) -> None:
        ids = random.Random(number).sample(range(50 + number), ROWS)
        with client.begin(TABLE, "upsert", request_id=f"batch-{number}") as writer:
            if not writer.committed:
                rows = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([number] * ROWS, pa.int64())})
                for name, value in (("lakemark_operation", "upsert"), ("lakemark_instant", writer.instant)):
                    rows = rows.append_column(name, pa.array([value] * ROWS))
                rows = rows.append_column("lakemark_columns", pa.nulls(ROWS, pa.string()))
                path = f"{writer.instant}/bucket-0/f.parquet"
                place = Path(open_location(writer.location)[1]).parent / path
                place.parent.mkdir(parents=True, exist_ok=True)  # there may have been an attempt before
                pq.write_table(rows, place)
                size = place.stat().st_size
                writer.commit([DataFile(path, size, ROWS, file_group="bucket-0", kind="delta", bucket=0)])
        self.rows |= dict.fromkeys(ids, number)


class KillableWorker:
    """A worker in a process of its own."""

    def __init__(self, address: str) -> None:
        self._command = [sys.executable, "-m", "lakemark", "-s", address, "optimizer", "run", "--executor", "arrow"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.slow
@pytest.mark.timeout(long(900))
@pytest.mark.parametrize("kind", [Appends, Upserts])
def test_whoever_is_killed_no_row_is_lost_and_the_work_gets_done(
    tmp_path: Path, kind: type[Appends] | type[Upserts]
) -> None:
    stream = kind()
    port = _free_port()
    address = f"127.0.0.1:{port}"
    service = Killable(store_url(tmp_path), str(tmp_path / "warehouse"), grpc_port=port, optimizer=True)
    service.start()
    workers = [KillableWorker(address) for _ in range(2)]
    for worker in workers:
        worker.start()
    kills: Counter[str] = Counter()
    killers = [
        Killer("service", [service], Habits((8.0, 15.0), 2.0), 1, kills),
        Killer("worker", workers, Habits((3.0, 9.0), 3.0), 2, kills),
    ]
    written = 0
    try:
        with connect(address) as client:
            properties = {**stream.properties, "lakemark.optimize.interval-min-ms": "500"}
            client.tables.create(TABLE, "id bigint, v bigint", properties=properties)
            for killer in killers:
                killer.start()
            ends = time.monotonic() + SECONDS
            while time.monotonic() < ends:
                try:
                    stream.write(client, written)
                except LakemarkError:
                    continue  # the same batch again, under its request id
                written += 1
            for killer in killers:
                killer.stop()
            assert [killer.error for killer in killers] == [None, None]
            settled = time.monotonic() + SETTLE_S
            while (told := client.optimizations.explain(TABLE)).tasks or told.state in {"pending", "backing_off"}:
                assert time.monotonic() < settled, told
                time.sleep(1.0)
            read = sorted((one["id"], one["v"]) for one in client.read(TABLE).to_pylist())
            assert read == sorted(stream.rows.items()), "each row once, as it was written last"
            runs = list(client.optimizations.runs(TABLE))
            done = [run for run in runs if run.state == "done"]
            assert len({run.version for run in done}) == len(done) > 0
            assert client.plan(TABLE).summary.files_planned < written
            assert kills["service"]
            assert kills["worker"]
    finally:
        for worker in workers:
            worker.kill()
        service.end()
    store = open_store(store_url(tmp_path))
    assert list(verify(store)) == []
    assert check_files(store, orphans=True).orphans == []
    store.close()
    print(f"{written} commits, {len(done)} runs, {dict(kills)} kills")
