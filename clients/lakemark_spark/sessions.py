"""What kind of Spark session it is: a classic one, in whose process the JVM can be asked, or one of Spark Connect."""

from __future__ import annotations

from pyspark.sql import SparkSession


def is_connect(spark: SparkSession) -> bool:
    """Whether Spark runs elsewhere, behind Spark Connect."""
    return not hasattr(spark, "_jvm")
