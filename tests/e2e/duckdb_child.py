"""Reads tables by DuckDB, in the environment that has it: a line of JSON for each request, and one for its answer.

A request names ``table``, ``version``, ``where`` and ``columns``; the answer is the rows, or a text that says what went
wrong. DuckDB reads the files of a plan by itself, each with the values of its partition; where deltas have to be merged
it is given the rows of the plan.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import duckdb

import lakemark
from lakemark_core.storage import local_path


def rows(client: lakemark.Client, table: str, version: int, where: str, columns: list[str]) -> list[list[Any]]:
    plan = client.plan(table, None if where == "true" else where, version=version)
    wanted = ", ".join(columns)
    with duckdb.connect() as connection:
        if any(file.kind == "delta" for file in plan.files()):
            merged = connection.from_arrow(plan.to_arrow())
            return [list(row) for row in merged.filter(where).project(wanted).fetchall()]
        answer: list[list[Any]] = []
        for file, path in zip(plan.files(), plan.paths, strict=True):
            fields = zip(plan.schema.partition_columns, file.partition, strict=True)
            places = [f"$${value}$$ AS {name}" for name, value in fields]
            whole = connection.read_parquet(local_path(path), hive_partitioning=False).project(
                ", ".join(["*", *places])
            )
            answer += [list(row) for row in whole.filter(where).project(wanted).fetchall()]
        return answer


def main() -> None:
    with lakemark.connect(sys.argv[1]) as client:
        for line in sys.stdin:
            answer: Any
            try:
                answer = rows(client, **json.loads(line))
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
