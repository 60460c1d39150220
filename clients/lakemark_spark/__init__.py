"""Lake tables in PySpark: ``append(df, "db.t")``, ``overwrite(df, "db.t")``, ``upsert(df, "db.t", keys=["id"])``,
``delete(spark, "db.t", "x > 5")``, ``delete_keys(df, "db.t")``, ``compact(spark, "db.t")`` and
``read(spark, "db.t", where="…")``.

Works with Spark's own parquet reader and writer; no jar is needed. Data goes straight to and from the table's location;
the service is only asked for instants, commits and plans.
"""

from lakemark_spark.compactions import compact
from lakemark_spark.deletes import delete, delete_keys
from lakemark_spark.reader import read
from lakemark_spark.upserts import upsert
from lakemark_spark.writer import append, overwrite

__all__ = ["append", "compact", "delete", "delete_keys", "overwrite", "read", "upsert"]
