"""INSERT statements of plain Spark through a door: ``scripts/bench doors [--json] [--rows N] [--rounds R]
[--statements S]``.

Spark 4.3 inserts into an unpartitioned lake table through its door, and another Spark of that version into a plain
parquet table of a Hive 2.3 Metastore, in turns: R statements of N rows, and 5 R of one row. The median counts. Then one
Spark runs S statements in eight threads through the door, and each row that it was told of is looked for. Before that
the N rows are upserted R times into a table with a key.
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

from tests.e2e.spark_runner import SparkProcess, as_users_run_it, interpreter

from benchmarks import machine
from benchmarks.peers.hive23 import hive_metastore
from benchmarks.service import running_service

SPARK: Final = "4.3"
STATEMENT_S_MAX: Final = 1_800
SMALL_ROUNDS: Final = 5  # times as many
COLUMNS: Final = "id BIGINT, k INT, x DOUBLE, name STRING"
KEYED: Final = (
    "'lakemark.type'='lake', 'lakemark.primary-key'='id', 'lakemark.bucket.count'='8', "
    "'lakemark.write.mode'='merge-on-read'"
)
_STATEMENTS: Final = """
from concurrent.futures import ThreadPoolExecutor

def one(number):
    try:
        spark.sql(f"INSERT INTO counted__append VALUES ({{number}})")
    except Exception:
        return None
    return number

with ThreadPoolExecutor(8) as pool:
    done = [number for number in pool.map(one, range({statements})) if number is not None]
there = [row.id for row in spark.table("counted").collect()]
result = [len(done), len(set(done) - set(there)), len(there) - len(set(there))]
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench doors", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--rows", type=int, default=5_000_000, help="of a large statement")
    parser.add_argument("--rounds", type=int, default=5, help="how often each thing is timed; the median counts")
    parser.add_argument("--statements", type=int, default=200, help="of one row, eight at a time")
    arguments = parser.parse_args()
    described = machine.description()
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as name:
        result = _compared(Path(name), arguments.rows, arguments.rounds, arguments.statements)
    described["load_1min_after"] = round(os.getloadavg()[0], 2)
    for key, value in result.items():
        print(f"{key}: {value}", flush=True)
    if arguments.json:
        versions = machine.versions("lakemark", "pyarrow", "pyspark")
        print(json.dumps({"benchmark": "doors", "machine": described, "versions": versions, **result}))


def _compared(work: Path, rows: int, rounds: int, statements: int) -> dict[str, Any]:
    with (
        running_service(work / "lakemark", hms=True) as service,
        hive_metastore(work / "hive") as hive_port,
        _spark(service.hms_port, work / "ours") as ours,
        _spark(hive_port, work / "theirs") as theirs,
    ):
        ours.sql(f"CREATE TABLE t ({COLUMNS}) USING parquet TBLPROPERTIES ('lakemark.type'='lake')")
        ours.sql("CREATE TABLE counted (id BIGINT) USING parquet TBLPROPERTIES ('lakemark.type'='lake')")
        theirs.sql(f"CREATE TABLE t ({COLUMNS}) STORED AS PARQUET")
        sides = {"door": (ours, "t__append"), "plain": (theirs, "t")}
        large = _in_turns(sides, _large(rows), rounds)
        small = _in_turns(sides, "SELECT 1L, 1, 1.0D, 'one'", SMALL_ROUNDS * rounds)
        expected = (rounds + 1) * rows + SMALL_ROUNDS * rounds + 1  # each begins with one that is not timed
        counted = [spark.sql("SELECT count(*) FROM t", timeout_s=STATEMENT_S_MAX) for spark in (ours, theirs)]
        assert counted == [[(expected,)], [(expected,)]]
        ours.sql(f"CREATE TABLE keyed ({COLUMNS}) USING parquet TBLPROPERTIES ({KEYED})")
        upserts = _in_turns({"upsert": (ours, "keyed__upsert")}, _large(rows), rounds)
        assert ours.sql("SELECT count(*) FROM keyed", timeout_s=STATEMENT_S_MAX) == [(rows,)]
        done, lost, twice = ours.python(_STATEMENTS.format(statements=statements), timeout_s=STATEMENT_S_MAX)
    return {
        "insert_vs_parquet": round(large["plain"] / large["door"], 3),
        "insert_s": round(large["door"], 3),
        "insert_plain_s": round(large["plain"], 3),
        "upsert_s": round(upserts["upsert"], 3),
        "upsert_vs_insert": round(large["door"] / upserts["upsert"], 3),
        "small_insert_s": round(small["door"], 4),
        "small_insert_plain_s": round(small["plain"], 4),
        "statements": done,
        "statements_lost": lost,
        "statements_twice": twice,
        "rows": rows,
        "rounds": rounds,
    }


def _spark(port: int, work: Path) -> SparkProcess:
    return SparkProcess(interpreter(SPARK), f"thrift://127.0.0.1:{port}", work, settings=as_users_run_it(work))


def _large(rows: int) -> str:
    return (
        "SELECT id, CAST(id % 1009 AS INT) AS k, CAST(hash(id) AS DOUBLE) / 1000 AS x, "
        f"concat('name ', hash(id, 7) % 100000) AS name FROM range({rows})"
    )


def _in_turns(sides: dict[str, tuple[SparkProcess, str]], query: str, rounds: int) -> dict[str, float]:
    """The median of the times of each side in seconds; the first of each is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds + 1):
        for name, (spark, table) in sides.items():
            begun = time.perf_counter()
            spark.sql(f"INSERT INTO {table} {query}", timeout_s=STATEMENT_S_MAX)
            taken[name].append(time.perf_counter() - begun)
    return {name: statistics.median(seconds[1:]) for name, seconds in taken.items()}


if __name__ == "__main__":
    main()
