"""Lake tables in PySpark: ``append(df, "db.t")``, ``overwrite(df, "db.t")``, ``upsert(df, "db.t", keys=["id"])``,
``insert(df, "db.t")``, ``update(spark, "db.t", {"x": "x + 1"}, "y = 2")``, ``merge(df, "db.t")`` with its clauses,
``delete(spark, "db.t", "x > 5")``, ``delete_keys(df, "db.t")``, ``compact(spark, "db.t")``, ``cluster(spark, "db.t")``
and ``read(spark, "db.t", where="…")``.

Works with Spark's own parquet reader and writer; no jar is needed. Data goes straight to and from the table's location;
the service is only asked for instants, commits and plans.
"""

from lakemark_spark.clusterings import cluster
from lakemark_spark.compactions import compact
from lakemark_spark.deletes import delete, delete_keys
from lakemark_spark.increments import changes
from lakemark_spark.inserts import insert
from lakemark_spark.merge_builder import Merge, merge
from lakemark_spark.reader import read
from lakemark_spark.row_changes import Changed
from lakemark_spark.streams import StreamWriter, stream_writer
from lakemark_spark.updates import update
from lakemark_spark.upserts import upsert
from lakemark_spark.writer import append, overwrite

__all__ = [
    "Changed",
    "Merge",
    "StreamWriter",
    "append",
    "changes",
    "cluster",
    "compact",
    "delete",
    "delete_keys",
    "insert",
    "merge",
    "overwrite",
    "read",
    "stream_writer",
    "update",
    "upsert",
]
