"""Fixtures of the end-to-end tests: plain Spark of both versions, and the Hive 2.3 metastore as oracle.

A JVM takes half a minute of processor time until it is warm, so the tests share one service and, for each version, one
Spark on it: each file uses databases, or names of tables, of its own. JVMs are started at first use and live until the
last end-to-end test has run, but no more than ``SPARKS_MAX`` of them at a time.
"""

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from benchmarks.peers.hive23 import hive_metastore

from lakemark import Client, connect
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from tests.e2e.spark_runner import SparkProcess, interpreter
from tests.spark_cluster import SparkCluster

SPARK_VERSIONS = ("4.3", "3.5")

SPARKS_MAX: Final = 2
"""Of ``start_spark`` at one time; each takes 1 GiB or more of memory."""

StartSpark = Callable[[str, str], SparkProcess]


@pytest.hookimpl(tryfirst=True)  # before tests that are slow are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked ``one_spark`` are slow with the Spark that is not theirs."""
    for item in items:
        if not isinstance(item, pytest.Function) or item.get_closest_marker("one_spark") is None:
            continue
        if item.callspec.params["spark_version"] != turn_of(item):
            item.add_marker(pytest.mark.slow)


def turn_of(test: pytest.Function) -> str:
    """The Spark version on which the default suite runs a test that is marked ``one_spark``.

    The test's name decides about its first parameters, and each further value of a parameter has the other version. So
    the choice does not depend on which tests are run.
    """
    place = zlib.crc32(test.nodeid.partition("[")[0].encode())
    # Parameters that are given together have one index.
    others = {at for name, at in test.callspec.indices.items() if name != "spark_version"}
    return SPARK_VERSIONS[(place + sum(others)) % len(SPARK_VERSIONS)]


@pytest.fixture(scope="package")
def start_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartSpark]:
    """`start_spark(version, metastore_uri)` gives the shared Spark of that version on that metastore.

    Version is `"4.3"` or `"3.5"`. Asking again for the same pair gives the same process, or a new one if that has died
    or was closed to make room for others; so ask in every test.
    """
    running: OrderedDict[tuple[str, str], SparkProcess] = OrderedDict()

    def start(version: str, metastore_uri: str) -> SparkProcess:
        wanted = version, metastore_uri
        if wanted not in running or not running[wanted].alive:
            running.pop(wanted, None)
            while len(running) >= SPARKS_MAX:
                running.popitem(last=False)[1].close()
            work_dir = tmp_path_factory.mktemp(f"spark{version}")
            running[wanted] = SparkProcess(interpreter(version), metastore_uri, work_dir)
        running.move_to_end(wanted)
        return running[wanted]

    yield start
    for process in running.values():
        process.close()


@pytest.fixture(params=SPARK_VERSIONS, ids=lambda version: f"spark-{version}", scope="session")
def spark_version(request: pytest.FixtureRequest) -> str:
    """Each Spark version in turn."""
    version: str = request.param
    return version


@pytest.fixture(scope="session")
def hive23_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Thrift URI of a Hive 2.3 metastore of this session: what a metastore that is not ours answers."""
    with hive_metastore(tmp_path_factory.mktemp("hive23") / "metastore") as port:
        yield f"thrift://127.0.0.1:{port}"


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    root = tmp_path_factory.mktemp("lake")
    settings = Settings(
        store=f"sqlite:///{root}/lakemark.db", warehouse=str(root / "warehouse"), grpc_port=0, hms_port=0
    )
    with Service(settings) as running:
        yield running


@pytest.fixture(scope="package")
def client(service: Service) -> Iterator[Client]:
    with connect(service.grpc_address) as opened:
        yield opened


@pytest.fixture(scope="module")
def cluster(spark_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two hosts that a file of tests has for itself."""
    running = SparkCluster(interpreter(spark_version), tmp_path_factory.mktemp("cluster") / spark_version)
    yield running
    running.close()


@pytest.fixture
def spark(start_spark: StartSpark, spark_version: str, service: Service) -> SparkProcess:
    return start_spark(spark_version, service.hms_uri)
