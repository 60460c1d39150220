"""What spark-submit runs: ``program.py <server> <task as JSON>``. Exits with 0 also if a writer was first, which is no
failure; the instant says how it ended."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from lakemark import connect
from lakemark.client.optimization import OptimizationTask
from lakemark_core.errors import CommitConflict
from lakemark_optimizer.spark import run_with_spark


def main(arguments: Sequence[str]) -> int:
    """The exit code. Raises what goes wrong, so that Spark reports the application as failed."""
    from pyspark.sql import SparkSession

    server, text = arguments
    task = OptimizationTask(**json.loads(text))
    spark = SparkSession.builder.getOrCreate()
    try:
        with connect(server) as client:
            try:
                result = run_with_spark(spark, client, task)
            except CommitConflict as error:
                print(f"a writer was first: {error.message}")
                return 0
            print(f"{result.outcome} {result.version or ''} {result.message}".rstrip())
            return 0
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
