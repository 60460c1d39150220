"""The table of primitive types against parquet files and Spark."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from lakemark.parquet import describe_metadata
from lakemark_core.types import Field, Primitive, Schema, schema_to_arrow
from lakemark_spark.schema import from_spark, to_spark
from tests.unit.core.types.samples import VALUES, every_primitive


@every_primitive
def test_footers(column_type: Primitive) -> None:
    schema = Schema((Field(1, "x", column_type),))
    low, high = VALUES[column_type.kind]
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": [high, None, low]}, schema_to_arrow(schema)), sink)
    metadata = pq.read_metadata(io.BytesIO(sink.getvalue()))
    assert metadata.schema.column(0).physical_type == column_type.record.parquet
    (known,) = describe_metadata(metadata, schema).statistics
    assert (known.min, known.max, known.null_count) == (low, high, 1)


@every_primitive
def test_spark_has_the_type(column_type: Primitive) -> None:
    spark_type = to_spark(column_type)
    assert from_spark(spark_type) == column_type
    assert (spark_type.typeName(), spark_type.simpleString()) == (column_type.record.spark_name, column_type.name)
