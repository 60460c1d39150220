"""One service for all tests of ``lakemark_spark``, and one Spark of each version in turn."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import dedent

import pytest

from lakemark import Client
from tests.e2e.spark_runner import SparkProcess, interpreter
from tests.integration.grpc_server import connected, running_service


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    # A location with characters that mean something in patterns and URIs.
    with running_service(tmp_path_factory.mktemp("lake [1]{a}%20é")) as service, connected(service) as client:
        client.databases.create("db")
        yield client


@pytest.fixture(scope="package")
def spark(spark_version: str, server: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    settings = {
        "spark.sql.catalogImplementation": "in-memory",
        # What must not matter: plans, limits and zones that differ from those of the table's layout.
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.files.maxRecordsPerFile": "1",
        "spark.sql.maxConcurrentOutputFileWriters": "3",
    }
    work = tmp_path_factory.mktemp(f"spark{spark_version}")
    with SparkProcess(interpreter(spark_version), "", work, settings=settings) as process:
        process.python(
            dedent(f"""
            import datetime as dt
            from decimal import Decimal
            from unittest import mock
            from pyspark.sql import functions as F
            import lakemark, lakemark_core.merge_sql, lakemark_spark, lakemark_spark.footers, lakemark_spark.reader
            import lakemark_spark as ls
            client = lakemark.connect({server.address!r})
            """)
        )
        yield process


@pytest.fixture
def table(spark_version: str, request: pytest.FixtureRequest) -> str:
    number = abs(hash(request.node.name))
    return f"db.t{spark_version.replace('.', '')}_{number}"
