"""A service whose warehouse lies in a bucket, and a Spark that reaches it by S3A and knows the service's metastore.

All of them ask the S3 server through a proxy, which counts and disturbs. Spark 4.3 is in the default suite, 3.5 in the
slow one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

import pytest

from lakemark import Client
from lakemark_core import storage
from lakemark_server.process import Service
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess, interpreter
from tests.integration.grpc_server import connected, running_service
from tests.integration.storage.conftest import SERVERS, running_server, s3_settings
from tests.s3_proxy import S3Proxy
from tests.s3_server import Bucket
from tests.s3a import lakemark_variables, s3a_settings


@dataclass(frozen=True, slots=True)
class SparkWorld:
    """``bucket`` looks past ``proxy``, all others through it."""

    service: Service
    client: Client
    proxy: S3Proxy
    bucket: Bucket
    spark: SparkProcess

    def run(self, code: str, **names: Any) -> Any:
        return run(self.spark, code, **names)

    def ids(self, table: str, **at: Any) -> list[int]:
        """By PySpark."""
        return self.run("result = ids(t, **at)", t=table, at=at)  # type: ignore[no-any-return]

    def sql_ids(self, table: str) -> list[int]:
        """By plain Spark SQL, which knows nothing but the metastore's address."""
        return [row[0] for row in self.spark.sql(f"SELECT id FROM {table} ORDER BY id")]

    def files(self, table: str) -> list[str]:
        """The keys of files below the table's location."""
        return [key for key in self.keys(table) if not key.endswith("/")]

    def keys(self, table: str) -> list[str]:
        """All keys there, with the markers that committers leave at the directories of instants."""
        prefix = self.client.tables.get(table).location.removeprefix(f"{self.bucket.uri}/")
        return self.bucket.keys(f"{prefix}/")


@pytest.fixture(
    params=["4.3", pytest.param("3.5", marks=pytest.mark.slow)], ids=lambda version: f"spark-{version}", scope="session"
)
def spark_version(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture(scope="package", params=SERVERS)
def bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
    with running_server(request.param) as server:
        yield server.bucket("lakes")


@pytest.fixture(scope="package")
def proxy(bucket: Bucket) -> Iterator[S3Proxy]:
    made = S3Proxy(bucket.server.endpoint)
    yield made
    made.close()


@pytest.fixture(scope="package")
def service(bucket: Bucket, proxy: S3Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = {
        **s3_settings(proxy.endpoint),
        "warehouse": f"{bucket.uri}/wh",
        "hms_enabled": True,
        "hms_port": 0,
        "dropped_retain_s": 3_600.0,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with running_service(tmp_path_factory.mktemp("lake"), **settings) as running:
            yield running
    storage.configure(None)


@pytest.fixture(scope="package")
def spark(
    spark_version: str, service: Service, proxy: S3Proxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkProcess]:
    work = tmp_path_factory.mktemp(f"s3a{spark_version}")
    settings = s3a_settings(spark_version, proxy.endpoint, committers=True)
    variables = lakemark_variables(proxy.endpoint)
    with SparkProcess(
        interpreter(spark_version), service.hms_uri, work, settings=settings, variables=variables
    ) as process:
        process.python(
            dedent(f"""
            from unittest import mock
            import lakemark
            import lakemark_spark as ls
            import lakemark_spark.reader
            client = lakemark.connect({service.grpc_address!r})
            def ids(t, **at):
                return [row.id for row in ls.read(spark, t, server=client, **at).orderBy("id").collect()]
            """)
        )
        yield process


@pytest.fixture(scope="package")
def client(service: Service) -> Iterator[Client]:
    with connected(service) as opened:
        opened.databases.create("db")
        yield opened


@pytest.fixture
def world(service: Service, client: Client, proxy: S3Proxy, bucket: Bucket, spark: SparkProcess) -> SparkWorld:
    proxy.clear()
    return SparkWorld(service, client, proxy, bucket, spark)


@pytest.fixture
def table(spark_version: str, request: pytest.FixtureRequest) -> str:
    """A name of its own."""
    return f"db.t{spark_version.replace('.', '')}_{abs(hash(request.node.name))}"
