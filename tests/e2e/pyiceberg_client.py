"""A process that appends to an Iceberg table of a Metastore by PyIceberg, which locks the table for each commit.

Runs in the environment of the peers: it imports nothing of Lakemark.
"""

from __future__ import annotations

import sys

import pyarrow as pa
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.exceptions import CommitFailedException, WaitingForLockException

TABLE = "ice.events"


def main(uri: str, tasks: str, writer: int, appends: int) -> None:
    """``tasks``: their names with commas between them, done in their order."""
    locks = {"lock-check-min-wait-time": "0.02", "lock-check-max-wait-time": "0.2", "lock-check-retries": "50"}
    catalog = HiveCatalog("lakemark", uri=uri, **locks)
    for task in tasks.split(","):
        _do(catalog, task, writer, appends)


def _do(catalog: HiveCatalog, task: str, writer: int, appends: int) -> None:
    if task == "create":
        catalog.create_namespace("ice")
        catalog.create_table(TABLE, schema=_rows(0, 0).schema)
    elif task == "append":
        failures = 0
        for number in range(appends):
            while True:
                try:
                    catalog.load_table(TABLE).append(_rows(writer, number))
                    break
                except (CommitFailedException, WaitingForLockException):  # somebody else came first
                    failures += 1
        print(failures)
    elif task == "widen":
        with catalog.load_table(TABLE).update_schema() as update:
            update.add_column("note", catalog.load_table(TABLE).schema().find_type("writer"))
    else:
        rows = catalog.load_table(TABLE).scan().to_arrow()
        pairs = sorted(zip(rows["writer"].to_pylist(), rows["number"].to_pylist(), strict=True))
        print(pairs, rows.column_names)


def _rows(writer: int, number: int) -> pa.Table:
    return pa.table({"writer": pa.array([writer], pa.int64()), "number": pa.array([number], pa.int64())})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
