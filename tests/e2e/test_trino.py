"""Trino reads lake tables as plain tables, and reads and writes warehouse tables. Run by scripts/test-trino."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from lakemark import Client, connect
from lakemark_server.process import Service
from lakemark_server.settings import Settings
from tests.trino_server import JAVA, TrinoError, TrinoServer

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not JAVA, reason="scripts/test-trino brings Trino and its Java")]
ROWS = 1_000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    root = tmp_path_factory.mktemp("lake")
    settings = Settings(
        store=f"sqlite:///{root}/lakemark.db",
        warehouse=str(root / "warehouse"),
        grpc_port=0,
        hms_enabled=False,
        hms_engine_port=0,
    )
    with Service(settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Client]:
    with connect(service.grpc_address) as opened:
        yield opened


@pytest.fixture(scope="module")
def trino(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrinoServer]:
    own = {"hive.non-managed-table-writes-enabled": "true"}
    server = TrinoServer(tmp_path_factory.mktemp("trino") / "server", service.engine_uri, own)
    yield server
    server.close()


def month(number: int, start: int) -> pa.Table:
    ids = pa.array(range(start, start + ROWS), pa.int64())
    return pa.table(
        {"id": ids, "name": pa.array([f"n{i}" for i in range(ROWS)]), "m": pa.array([number] * ROWS, pa.int32())}
    )


def put(client: Client, table: str, rows: pa.Table, operation: str = "append") -> None:
    with client.begin(table, operation) as writer:  # type: ignore[arg-type]
        writer.write(rows)
        writer.commit()


@pytest.fixture(scope="module")
def trips(client: Client) -> str:
    client.tables.create("default.trips", "id bigint, name string, m int", partitioned_by=["m"])
    for at in range(4):
        put(client, "default.trips", pa.concat_tables([month(1, at * ROWS), month(2, at * ROWS)]))
    return "trips"


def test_a_lake_table_is_read_exactly(trino: TrinoServer, trips: str) -> None:
    assert trino.rows("SHOW TABLES") == [[trips]]
    assert trino.rows(f"SELECT count(*), sum(id), count(DISTINCT name) FROM {trips}") == [
        [8 * ROWS, 2 * sum(range(4 * ROWS)), ROWS]
    ]
    types = trino.rows("SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'default'")
    assert types == [[trips, "BASE TABLE"]]


def test_partitions_are_pruned(trino: TrinoServer, trips: str) -> None:
    rows, stats = trino.ran(f"SELECT count(*), min(id) FROM {trips} WHERE m = 2")
    assert (rows, stats["processedRows"]) == ([[4 * ROWS, 0]], 4 * ROWS)
    rows, stats = trino.ran(f"SELECT DISTINCT m FROM {trips} WHERE m > 5")
    assert (rows, stats["processedRows"]) == ([], 0)


def test_each_file_is_one_partition(trino: TrinoServer, trips: str) -> None:
    assert trino.rows(f'SELECT count(*), count(DISTINCT lakemark_slice) FROM "{trips}$partitions"') == [[8, 8]]
    assert trino.rows(f'SELECT count(DISTINCT "$path") FROM {trips}') == [[8]]


def test_older_versions_are_tables_too(trino: TrinoServer, trips: str) -> None:
    assert trino.rows(f'SELECT count(*) FROM "{trips}@v1"') == [[2 * ROWS]]
    assert trino.rows(f'SELECT min(id) FROM "{trips}@v3..v4"') == [[3 * ROWS]]


def test_commits_are_seen_at_once(trino: TrinoServer, client: Client) -> None:
    client.tables.create("default.hot", "id bigint, name string, m int", partitioned_by=["m"])
    assert trino.rows("SELECT count(*) FROM hot") == [[0]]
    put(client, "default.hot", month(1, 0))
    assert trino.rows("SELECT count(*) FROM hot") == [[ROWS]]
    put(client, "default.hot", month(7, 5), "overwrite_table")
    assert trino.rows("SELECT m, count(*) FROM hot GROUP BY m") == [[7, ROWS]]


def test_a_query_reads_one_version_whatever_is_committed_meanwhile(trino: TrinoServer, client: Client) -> None:
    """Every version has ROWS rows of one month, in files of its own; Trino lists names first and partitions later."""
    client.tables.create("default.replaced", "id bigint, name string, m int", partitioned_by=["m"])
    put(client, "default.replaced", month(1, 0))
    ended = threading.Event()

    def replace() -> None:
        number = 1
        while not ended.is_set():
            number += 1
            put(client, "default.replaced", month(number, 0), "overwrite_table")

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(replace)
        try:
            for _ in range(20):
                assert trino.rows("SELECT count(*), count(DISTINCT m), count(DISTINCT id) FROM replaced") == [
                    [ROWS, 1, ROWS]
                ]
        finally:
            ended.set()
        writer.result()
    assert client.snapshot("default.replaced").version > 20


def test_lake_tables_are_for_reading(trino: TrinoServer, trips: str) -> None:
    for statement, reason in (
        (f"INSERT INTO {trips} VALUES (1, 'x', 1, 'y')", "lake table"),
        (f"ALTER TABLE {trips} ADD COLUMN more int", "lake table"),
        (f"ALTER TABLE {trips} RENAME TO other", "lake table"),
        (f"DELETE FROM {trips} WHERE m = 1", "metastore delete operations failed"),  # Trino's words for ours
    ):
        with pytest.raises(TrinoError, match=reason):
            trino.rows(statement)
    assert trino.rows(f"SELECT count(*) FROM {trips}") == [[8 * ROWS]]


def test_warehouse_tables_are_written_and_read(trino: TrinoServer, service: Service) -> None:
    trino.rows("CREATE SCHEMA mine")
    trino.rows(
        "CREATE TABLE mine.events (id bigint, day varchar) WITH (partitioned_by = ARRAY['day'], format = 'PARQUET')"
    )
    trino.rows("INSERT INTO mine.events VALUES (1, 'mon'), (2, 'tue'), (3, 'tue')")
    rows, stats = trino.ran("SELECT sum(id) FROM mine.events WHERE day = 'tue'")
    assert (rows, stats["processedRows"]) == ([[5]], 2)
    trino.rows("ANALYZE mine.events")
    assert trino.rows("SHOW STATS FOR mine.events")[-1][4] == 3.0
    trino.rows("CALL system.drop_stats('mine', 'events')")
    trino.rows("CREATE TABLE mine.copied AS SELECT * FROM mine.events")
    trino.rows("CREATE VIEW mine.late AS SELECT id FROM mine.copied WHERE day = 'tue'")
    assert trino.rows("SELECT count(*) FROM mine.late") == [[2]]
    trino.rows("ALTER TABLE mine.copied ADD COLUMN note varchar")
    trino.rows("ALTER TABLE mine.copied RENAME TO mine.renamed")
    assert trino.rows("SELECT count(*), count(note) FROM mine.renamed") == [[3, 0]]
    trino.rows("DELETE FROM mine.events WHERE day = 'tue'")
    assert trino.rows("SELECT id FROM mine.events") == [[1]]
    for kind, name in (("VIEW", "late"), ("TABLE", "renamed"), ("TABLE", "events")):
        trino.rows(f"DROP {kind} mine.{name}")
    trino.rows("DROP SCHEMA mine")
    assert [one.name for one in service.catalog.list_databases("hive")] == ["default"]
