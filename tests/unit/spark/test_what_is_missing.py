"""Which errors of Spark say that it lacks something for the place of a lake table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakemark_core.errors import StorageRefused
from lakemark_spark.locations import reached_by

SPARK = cast(
    SparkSession,
    SimpleNamespace(
        _jsc=SimpleNamespace(hadoopConfiguration=lambda: {"fs.s3a.endpoint": ""}),
        _jvm=SimpleNamespace(
            org=SimpleNamespace(
                apache=SimpleNamespace(
                    hadoop=SimpleNamespace(
                        util=SimpleNamespace(VersionInfo=SimpleNamespace(getVersion=lambda: "3.5.0"))
                    )
                )
            )
        ),
    ),
)


def fail(message: str, location: str = "s3://lake/t") -> None:
    with reached_by(SPARK, location):
        raise PySparkException(message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "no_file_system"),
        ("java.lang.NoClassDefFoundError: software/amazon/awssdk/core/exception/SdkException", "no_file_system"),
        ("s3a://lake/t: org.apache.hadoop.fs.s3a.auth.NoAwsCredentialsException: none", "no_credentials"),
        ("getFileStatus on s3a://lake/t: (Service: S3, Status Code: 403, Request ID: 1)", "access_denied"),
        ("s3a://lake/t: InvalidAccessKeyId: The AWS access key does not exist", "bad_credentials"),
        ("`s3a://lake/t': UnknownStoreException", "no_such_bucket"),
        ("[TASK_WRITE_FAILED] s3a://lake/t: java.io.IOException: No space left on device", "no_space"),
    ],
)
def test_what_is_missing_is_told(message: str, reason: str) -> None:
    with pytest.raises(StorageRefused, match=r"^Spark does not reach s3a://lake/t: ") as told:
        fail(f"An error occurred while calling o1.parquet.\n: {message}\n\tat org.apache.spark")
    assert (told.value.details["reason"], told.value.details["bucket"]) == (reason, "lake")
    assert message[:50] in told.value.message


@pytest.mark.parametrize(
    "message",
    [
        "getFileStatus on s3a://source/of/rows: Status Code: 403",
        "java.lang.NoClassDefFoundError: com/example/Udf",
        "[DIVIDE_BY_ZERO] Division by zero",
    ],
)
def test_other_errors_pass(message: str) -> None:
    with pytest.raises(PySparkException) as error:
        fail(message)
    assert cast(Any, str(error.value)) == message


def test_an_endpoint_that_only_lakemark_knows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEMARK_S3_ENDPOINT", "http://minio:9000")
    with pytest.raises(StorageRefused, match=r"Spark needs spark\.hadoop\.fs\.s3a\.endpoint=http://minio:9000"):
        fail("`s3a://lake/t': UnknownStoreException")
