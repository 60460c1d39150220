"""The port for engines other than Spark: a whole service, and a simple engine that lists the places of partitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lakemark import Client
from lakemark_server.process import Service
from tests.integration.grpc_server import connected, running_service
from tests.integration.hms_objects import partition

TABLE = "default.t"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running_service(tmp_path, hms_enabled=True, hms_port=0, hms_engine_port=0) as running:
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with connected(service) as opened:
        opened.tables.create(TABLE, "id bigint, m int", partitioned_by=["m"])
        yield opened


def metastore(uri: str) -> Any:
    transport = TBufferedTransport(TSocket("127.0.0.1", int(uri.rpartition(":")[2])))
    transport.open()
    return ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(transport))


@pytest.fixture
def engine(service: Service) -> Iterator[Any]:
    opened = metastore(service.engine_uri)
    yield opened
    opened._iprot.trans.close()


def put(client: Client, ids: range, month: int, operation: Any = "append") -> None:
    with client.begin(TABLE, operation) as writer:
        writer.write(pa.table({"id": pa.array(ids, pa.int64()), "m": pa.array([month] * len(ids), pa.int32())}))
        writer.commit()


def read(engine: Any, names: list[str]) -> list[tuple[int, int]]:
    """As such engines do: all files of the places of all partitions, with the values of the partitions."""
    rows = []
    for one in engine.get_partitions_by_names("default", "t", names):
        for file in sorted(Path(one.sd.location.removeprefix("file:")).iterdir()):
            rows += [(found, int(one.values[0])) for found in pq.read_table(file, columns=["id"])["id"].to_pylist()]
    return sorted(rows)


def test_an_engine_that_lists_directories_reads_the_version_that_it_has_listed(client: Client, engine: Any) -> None:
    put(client, range(5), 1)
    put(client, range(5, 8), 2)
    listed = engine.get_partition_names("default", "t", -1)
    expected = [*((n, 1) for n in range(5)), *((n, 2) for n in range(5, 8))]
    assert read(engine, listed) == expected
    put(client, range(100, 102), 2, "overwrite_table")
    assert read(engine, listed) == expected
    assert read(engine, engine.get_partition_names("default", "t", -1)) == [(100, 2), (101, 2)]
    values = [part.partition("=")[2] for part in listed[0].split("/")]
    assert engine.get_partition("default", "t", values).values == values
    assert engine.get_partition_by_name("default", "t", listed[0]).values == values


def test_partitions_are_found_by_leading_values_and_filters(client: Client, engine: Any) -> None:
    put(client, range(5), 1)
    put(client, range(5, 8), 2)
    assert len(engine.get_partition_names_ps("default", "t", ["2", ""], -1)) == 1
    assert [one.values[0] for one in engine.get_partitions_by_filter("default", "t", "m > 1", -1)] == ["2"]
    assert len(engine.get_partitions("default", "t", -1)) == 2


def test_the_same_table_is_a_view_on_the_other_port(service: Service, client: Client, engine: Any) -> None:
    spark = metastore(service.hms_uri)
    for opened, kind, other in ((engine, "EXTERNAL_TABLE", "VIRTUAL_VIEW"), (spark, "VIRTUAL_VIEW", "EXTERNAL_TABLE")):
        assert opened.get_table("default", "t").tableType == kind
        assert opened.get_tables_by_type("default", "*", kind) == ["t"]
        assert opened.get_tables_by_type("default", "*", other) == []
        assert [one.tableType for one in opened.get_table_meta("default", "*", [kind])] == [kind]
    spark._iprot.trans.close()


def test_lake_tables_are_for_reading(client: Client, engine: Any) -> None:
    put(client, range(5), 1)
    shown = engine.get_table("default", "t")
    shown.sd.cols.append(ttypes.FieldSchema("more", "int", ""))
    with pytest.raises(ttypes.InvalidOperationException, match="on this port it is not what it is"):
        engine.alter_table("default", "t", shown)
    with pytest.raises(ttypes.InvalidObjectException, match="is a lake table"):
        engine.add_partitions([partition(["1", "x"], of="t")])
    (name,) = engine.get_partition_names("default", "t", -1)
    with pytest.raises(ttypes.MetaException, match="is a lake table"):
        engine.drop_partition_by_name("default", "t", name, True)
    assert len(read(engine, [name])) == 5
