"""A bucket that Spark cannot reach, while the service can: the error says which of Spark's settings is missing."""

from __future__ import annotations

import pytest

from tests.e2e.spark_runner import SparkStatementError
from tests.e2e.storage.conftest import SparkWorld
from tests.s3_server import MotoServer

pytestmark = pytest.mark.spark


def refused(world: SparkWorld, table: str, setting: str, value: str) -> str:
    """What is said when PySpark appends to a table in a bucket for which Spark has this setting."""
    bucket = world.bucket.server.bucket("lost").name
    world.client.tables.create(table, "id bigint", location=f"s3://{bucket}/t")
    with pytest.raises(SparkStatementError, match=f"^StorageRefused: Spark does not reach s3a://{bucket}/t/") as told:
        world.run(
            """
            spark.sparkContext._jsc.hadoopConfiguration().set(setting, value)
            ls.append(spark.range(3).toDF('id'), t, server=client)
            """,
            t=table,
            setting=f"fs.s3a.bucket.{bucket}.{setting}",
            value=value,
        )
    assert world.client.snapshot(table).version == 0
    return told.value.message


def test_without_credentials(world: SparkWorld, table: str) -> None:
    provider = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
    said = refused(world, table, "aws.credentials.provider", provider)
    assert "it has no credentials: set spark.hadoop.fs.s3a.access.key and spark.hadoop.fs.s3a.secret.key" in said


def test_at_another_endpoint(world: SparkWorld, table: str) -> None:
    other = MotoServer()
    try:
        said = refused(world, table, "endpoint", other.endpoint)
    finally:
        other.close()
    assert "no such bucket where it looks: make it first, or set spark.hadoop.fs.s3a.endpoint" in said
