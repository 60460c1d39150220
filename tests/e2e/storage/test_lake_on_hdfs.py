"""Lake tables on a real HDFS: the service and the Python client by WebHDFS or libhdfs, Spark by Hadoop's own client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from benchmarks.peers.java import java_home

from lakemark import Client
from lakemark_core import storage
from lakemark_server.process import Service
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess, interpreter
from tests.e2e.storage.hdfs_life import files, live
from tests.hdfs_cluster import HdfsCluster
from tests.integration.grpc_server import connected, running_service
from tests.programs import ProgramMissing, libhdfs

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    running = HdfsCluster(tmp_path_factory.mktemp("hdfs") / "cluster")
    yield running
    running.close()


@pytest.fixture(scope="module")
def hdfs_service(cluster: HdfsCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = {"warehouse": f"{cluster.uri}/wh", "webhdfs": cluster.web, "hms_enabled": True, "hms_port": 0}
    with running_service(tmp_path_factory.mktemp("hdfs") / "service", **settings) as running:
        yield running
    storage.configure(None)


@pytest.fixture(scope="module")
def hdfs_client(hdfs_service: Service) -> Iterator[Client]:
    with connected(hdfs_service) as opened:
        opened.databases.create("db")
        yield opened


@pytest.fixture(params=["4.3", "3.5"], ids=lambda version: f"spark-{version}")
def hdfs_spark(
    request: pytest.FixtureRequest,
    hdfs_service: Service,
    cluster: HdfsCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SparkProcess]:
    work = tmp_path_factory.mktemp(f"hdfs{request.param}")
    variables = {"LAKEMARK_WEBHDFS": cluster.web}
    with SparkProcess(interpreter(request.param), hdfs_service.hms_uri, work, variables=variables) as process:
        process.python(
            dedent(f"""
            import lakemark
            import lakemark_spark as ls
            client = lakemark.connect({hdfs_service.grpc_address!r})
            def ids(t, **at):
                return [row.id for row in ls.read(spark, t, server=client, **at).orderBy("id").collect()]
            """)
        )
        yield process


def test_the_python_client(hdfs_service: Service, hdfs_client: Client, cluster: HdfsCluster) -> None:
    live(hdfs_service, hdfs_client, cluster.uri)


def test_the_python_client_by_libhdfs(cluster: HdfsCluster, tmp_path: Path) -> None:
    """In a process of its own, since libhdfs starts a JVM in it."""
    try:
        library = libhdfs()
    except ProgramMissing as missing:
        pytest.skip(str(missing))
    variables = {
        "ARROW_LIBHDFS_DIR": str(library),
        "JAVA_HOME": str(java_home() or ""),
        "CLASSPATH": os.pathsep.join(map(str, cluster.class_path)),
    }
    finished = subprocess.run(
        [sys.executable, "-m", "tests.e2e.storage.hdfs_life", cluster.uri, str(tmp_path)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert finished.returncode == 0, finished.stderr[-4_000:]
    assert finished.stdout.splitlines()[-1] == "HadoopFileSystem"


def test_spark(hdfs_client: Client, hdfs_spark: SparkProcess) -> None:
    client, name = hdfs_client, f"db.spark{hdfs_spark.version.replace('.', '_')}"
    client.tables.create(name, "id bigint, s string, p string", partitioned_by=["p"])
    states = run(
        hdfs_spark,
        """
        rows = lambda first, end, s: spark.range(first, end, 1, 2).selectExpr(
            "id", f"'{s}' s", "concat('a b%2', id % 3) p"
        )
        ls.append(rows(0, 12, "a"), t, server=client)
        ls.upsert(rows(9, 15, "b"), t, keys=["id", "p"], server=client)
        ls.delete(spark, t, "id < 3 or id = 14", server=client)
        ls.overwrite(rows(100, 101, "c"), t, partitions="dynamic", server=client)
        result = [ids(t, version=version) for version in range(1, 5)]
        """,
        t=name,
    )
    expected = [
        list(range(12)),
        list(range(15)),
        list(range(3, 14)),
        [one for one in range(3, 14) if one % 3 != 1] + [100],
    ]
    assert states == expected
    for version, ids in enumerate(expected, 1):
        database, table = name.split(".")
        rows = hdfs_spark.sql(f"SELECT id FROM {database}.`{table}@v{version}` ORDER BY id")
        assert [row[0] for row in rows] == ids
        assert sorted(client.read(name, version=version).column("id").to_pylist()) == ids
    client.timeline.clean(name, retain_versions=1)
    planned = {path.removeprefix(client.tables.get(name).location + "/") for path in client.plan(name).paths}
    assert set(files(name, client)) == planned
    hdfs_spark.sql(f"DROP VIEW {name}")
    assert [one.name for one in client.tables.dropped("db")] == [name]
    client.tables.purge(name)


def test_statements_through_doors(hdfs_client: Client, hdfs_spark: SparkProcess) -> None:
    client, name = hdfs_client, f"db.doors{hdfs_spark.version.replace('.', '_')}"
    client.tables.create(name, "id bigint, p string", partitioned_by=["p"])
    hdfs_spark.sql(f"INSERT INTO {name}__append SELECT id, concat('a b%2', id % 2) FROM range(0, 8, 1, 2)")
    hdfs_spark.sql(f"INSERT INTO {name}__append SELECT id + 10, p FROM {name} WHERE id < 2")
    hdfs_spark.sql(f"INSERT INTO {name}__overwrite SELECT id, p FROM {name} WHERE p = 'a b%21'")
    rows = hdfs_spark.sql(f"SELECT id FROM {name} ORDER BY id")
    assert [row[0] for row in rows] == [*range(8), 10, 11]
    assert sorted(client.read(name).column("id").to_pylist()) == [*range(8), 10, 11]
    keyed = {"lakemark.primary-key": "id", "lakemark.bucket.count": "2", "lakemark.write.mode": "merge-on-read"}
    client.tables.create(f"{name}k", "id bigint, v int", properties=keyed)
    hdfs_spark.sql(f"INSERT INTO {name}k__upsert SELECT id, 1 FROM range(6)")
    hdfs_spark.sql(f"INSERT INTO {name}k__upsert SELECT id, 2 FROM range(3)")
    hdfs_spark.sql(f"INSERT INTO {name}k__delete SELECT id FROM range(4, 6)")
    assert hdfs_spark.sql(f"SELECT id, v FROM {name}k ORDER BY id") == [(0, 2), (1, 2), (2, 2), (3, 1)]
