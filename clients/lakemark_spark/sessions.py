"""What kind of Spark session it is: a classic one, in whose process the JVM can be asked, or one of Spark Connect."""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession


def is_connect(spark: SparkSession) -> bool:
    """Whether Spark runs elsewhere, behind Spark Connect."""
    return not hasattr(spark, "_jvm")


def is_deterministic(rows: DataFrame) -> bool:
    """Whether Spark says that rows are the same each time that they are computed; Spark Connect does not tell."""
    if is_connect(rows.sparkSession):
        return True
    plan = cast(Any, rows)._jdf.queryExecution().analyzed()
    return bool(plan.deterministic())
