"""Lake tables in PySpark: ``append(df, "db.t")``, ``overwrite(df, "db.t")``, ``read(spark, "db.t", where="…")``.

Works with Spark's own parquet reader and writer; no jar is needed. Data goes straight to and from the table's location;
the service is only asked for instants, commits and plans.
"""

from lakemark_spark.reader import read
from lakemark_spark.writer import append, overwrite

__all__ = ["append", "overwrite", "read"]
