"""Locations that name hosts, keys and nonsense, and stores that never answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest
from hmsclient.genthrift.hive_metastore.ttypes import MetaException
from thrift.Thrift import TException

from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_server.process import Service
from tests.integration.attacks.thrift_client import Client, thrift_client
from tests.integration.grpc_server import running_service
from tests.integration.hms_objects import database, partition, table
from tests.wire import Wire, refused

SECRET = "pLaNtEd0SeCrEt"  # noqa: S105
REFUSED = [
    (f"s3://AKIA:{SECRET}@b/x?endpoint_override=127.0.0.1:1&scheme=http", "before the @"),
    (f"s3a://{SECRET}@b/x", "before the @"),
    (f"s3://AKIA:abc/{SECRET}@b/x", "before the @"),
    (f"hdfs://u:{SECRET}@names:8020/x", "before the @"),
    (f"abfss://c:{SECRET}@account.dfs.core.windows.net/x", "before the @"),
    (f"gs://b?endpoint_override=127.0.0.1:1&token={SECRET}", "query"),
    (f"s3://b/x?X-Amz-Signature={SECRET}", "query"),
    (f"/warehouse/x#{SECRET}", "fragment"),
    ("/warehouse/a\nb", "control character"),
    ("/" + "a/" * 2_500, "5001 characters; at most 4000"),
]


@pytest.mark.parametrize(("location", "words"), REFUSED, ids=[words + str(n) for n, (_, words) in enumerate(REFUSED)])
def test_locations_that_say_more_than_a_place_are_refused_in_words(
    wire: Wire, client: Client, capfd: pytest.CaptureFixture[str], location: str, words: str
) -> None:
    client.create_table(table("t", keys="d string"))
    client.create_database(database("known"))
    told: list[str] = []
    with refused("invalid_argument", words) as error:
        wire.create(location=location)
    told.append(error().text)
    with refused("invalid_argument", words) as error:
        wire.catalog.CreateDatabase(c.CreateDatabaseRequest(database=c.Database(name="d", location=location)))
    told.append(error().text)
    altered = client.get_table("default", "t")
    altered.sd.location = location
    for call in (
        lambda: client.create_database(database("d", locationUri=location)),
        lambda: client.alter_database("known", database("known", locationUri=location)),
        lambda: client.create_table(table("u", location=location)),
        lambda: client.create_table(table("u", location=location, kind="EXTERNAL_TABLE")),
        lambda: client.create_table(table("l", location=location, parameters={"lakemark.type": "lake"})),
        lambda: client.alter_table("default", "t", altered),
        lambda: client.add_partition(partition(["1"], of="t", location=location)),
        lambda: client.add_partitions([partition(["1"], of="t", location=location)]),
    ):
        with pytest.raises(TException, match=words) as raised:
            call()
        told.append(str(raised.value))
    assert SECRET not in "".join(told) + "".join(capfd.readouterr())


def test_a_location_that_the_system_refuses_is_told_in_words(
    wire: Wire, client: Client, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    long = f"{tmp_path}/{'a' * 300}"  # no file has such a name
    with refused("unavailable", "cannot be"):
        wire.create(location=long)
    for external in ("MANAGED_TABLE", "EXTERNAL_TABLE"):
        with pytest.raises(MetaException, match="cannot be"):
            client.create_table(table("t", location=f"{long}/b", kind=external))
    assert "Traceback" not in "".join(capfd.readouterr())


@contextmanager
def listener_without_answers() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield listening.getsockname()[1]


@pytest.mark.timeout(120)
def test_a_store_that_never_answers_stops_nobody_else(tmp_path: Path) -> None:
    with ExitStack() as stack:
        port = stack.enter_context(listener_without_answers())
        service: Service = stack.enter_context(
            running_service(
                tmp_path,
                hms_enabled=True,
                hms_port=0,
                s3_endpoint=f"http://127.0.0.1:{port}",
                s3_region="x",
                s3_access_key_id="a",
                s3_secret_access_key="b",  # noqa: S106
                storage_call_s=3.0,
            )
        )
        wire = Wire(service.grpc_address)
        stack.callback(wire.close)
        pool = stack.enter_context(ThreadPoolExecutor(48))

        def by_thrift(number: int) -> str:
            with thrift_client(service) as client, pytest.raises(MetaException) as raised:
                client.create_database(database(f"t{number}", locationUri=f"s3://bucket{number}/x"))
            return str(raised.value)

        def by_grpc(number: int) -> str:
            named = c.Database(name=f"d{number}", location=f"s3://bucket{number}/x")
            with pytest.raises(grpc.RpcError) as raised:
                wire.catalog.CreateDatabase(c.CreateDatabaseRequest(database=named))
            return str(raised.value.details())  # type: ignore[attr-defined]

        waiting = [pool.submit(one, number) for number in range(24) for one in (by_thrift, by_grpc)]
        begun = time.monotonic()
        with thrift_client(service) as honest:
            honest.create_table(table("honest"))
        wire.create()
        taken = time.monotonic() - begun
        told = [one.result() for one in waiting]
        assert any("did not answer within 3 s" in text for text in told)
        assert any("wait for its answer already" in text for text in told)
        assert all("did not answer" in text or "wait for its answer" in text for text in told)
        assert taken < 10.0, taken
