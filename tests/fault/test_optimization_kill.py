"""Kill -9 of the planning service and of workers, with a stream of commits: the rows stay, and the work gets done."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark import connect
from lakemark_core.errors import LakemarkError
from lakemark_server.kv import open_store
from lakemark_server.verify import verify
from tests.fault.killable import Killable
from tests.fault.killers import Habits, Killer
from tests.stores import store_url

SECONDS = float(os.environ.get("LAKEMARK_TEST_MINUTES", "0.75")) * 60
SETTLE_S = 240.0
ROWS = 20
TABLE = "default.t"


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
@pytest.mark.timeout(7_200)
def test_whoever_is_killed_no_row_is_lost_and_the_work_gets_done(tmp_path: Path) -> None:
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
            properties = {"lakemark.optimize.minor.fragments": "4", "lakemark.optimize.interval-min-ms": "500"}
            client.tables.create(TABLE, "id bigint", properties=properties)
            for killer in killers:
                killer.start()
            ends = time.monotonic() + SECONDS
            while time.monotonic() < ends:
                try:
                    with client.begin(TABLE, request_id=f"batch-{written}") as writer:
                        if not writer.committed:
                            writer.write(pa.table({"id": range(written * ROWS, (written + 1) * ROWS)}))
                            writer.commit()
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
            ids = sorted(client.read(TABLE).column("id").to_pylist())
            assert ids == list(range(written * ROWS)), "each row once"
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
    store.close()
