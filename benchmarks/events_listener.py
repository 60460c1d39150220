"""How fast an outside Hive 2.3 metastore follows: ``scripts/bench events_listener [--json]``.

A paused listener lets changes pile up: tables are created, then partitions are added. Then it is resumed, and the time
is taken until it is done with all of them. Most of that time is Hive's.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks import hms_load, machine
from benchmarks.hms_load import DATABASE, System
from benchmarks.peers.hive23 import connect as hive_client
from benchmarks.peers.hive23 import hive_metastore
from benchmarks.service import Service, running_service
from lakemark import connect

TABLES: Final = 100
PARTITIONS: Final = 1_000
LISTENER: Final = "bench"
_POLL_S: Final = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench events_listener", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--tables", type=int, default=TABLES, help="tables to create")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="partitions to add to one table")
    arguments = parser.parse_args()
    described = machine.description()
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory:
        work_dir = Path(directory)
        with hive_metastore(work_dir / "hive") as port, running_service(work_dir / "lakemark", hms=True) as ours:
            figures = measure(ours, port, work_dir, arguments.tables, arguments.partitions)
    described["load_1min_after"] = round(os.getloadavg()[0], 2)
    print(", ".join(f"{name} {value}" for name, value in figures.items()))
    if arguments.json:
        print(
            json.dumps(
                {
                    "benchmark": "events_listener",
                    "machine": described,
                    "versions": machine.versions("lakemark", "pyspark", "thrift"),
                    **figures,
                }
            )
        )


def measure(ours: Service, hive_port: int, work_dir: Path, tables: int, partitions: int) -> dict[str, float]:
    """``listener_ddl_per_s``: changes of tables; ``listener_partitions_per_s``: partitions added in one request.

    ``ours`` serves the Metastore protocol, and has no database of the benchmark yet.
    """
    system = System("ours", ours.hms_port, f"file:{work_dir}/ours")
    with connect(ours.grpc_address) as client, hms_load.connected(ours.hms_port) as here:
        hms_load.create_table(system)
        client.listeners.create(LISTENER, f"thrift://127.0.0.1:{hive_port}", [DATABASE])
        _until_done(client)
        client.listeners.pause(LISTENER)
        changes = _change_tables(here, tables)
        ddl_s = _resumed(client)
        client.listeners.pause(LISTENER)
        batch = next(iter(hms_load.partition_batches(system)))[:partitions]
        here.add_partitions(batch)
        partitions_s = _resumed(client)
        assert client.listeners.compare(LISTENER).different == 0
        client.listeners.drop(LISTENER)
    with hive_client(hive_port) as there:
        assert len(there.get_partition_names(DATABASE, hms_load.TABLE, -1)) == len(batch)
    return {
        "listener_ddl_per_s": round(changes / ddl_s, 1),
        "listener_partitions_per_s": round(len(batch) / partitions_s, 1),
    }


def _change_tables(here: Any, tables: int) -> int:
    """Creates tables in the database of the benchmark. Returns how many changes that are."""
    model = here.get_table(DATABASE, hms_load.TABLE)
    model.partitionKeys = []
    for number in range(tables):
        model.tableName = f"t{number}"
        model.sd.location = None
        here.create_table(model)
    return tables


def _resumed(client: Any) -> float:
    """Resumes and returns the seconds until everything is done."""
    began = time.perf_counter()
    client.listeners.resume(LISTENER)
    _until_done(client)
    return time.perf_counter() - began


def _until_done(client: Any) -> None:
    while True:
        told = client.listeners.get(LISTENER)
        if told.lag_events == 0 and told.repairs_done == told.repairs_asked:
            return
        time.sleep(_POLL_S)


if __name__ == "__main__":
    main()
