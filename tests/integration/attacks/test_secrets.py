"""Secrets that clients plant wherever a location or an address is taken: none comes back in an error or a log line."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr

import grpc
import pytest
import structlog
from thrift.Thrift import TException

from lakemark.cli.app import run
from lakemark_core.errors import Unavailable
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import listeners_pb2 as n
from lakemark_proto.v1 import mounts_pb2 as m
from lakemark_proto.v1 import sinks_pb2 as s
from lakemark_proto.v1 import types_pb2 as p
from lakemark_proto.v1.listeners_pb2_grpc import ListenerServiceStub
from lakemark_proto.v1.mounts_pb2_grpc import MountServiceStub
from lakemark_proto.v1.sinks_pb2_grpc import SinkServiceStub
from lakemark_server.host import logs
from lakemark_server.process import Service
from tests.integration.attacks.thrift_client import Client
from tests.integration.hms_objects import database, partition, table
from tests.wire import Wire

SECRET = "pLaNtEd0SeCrEt"  # noqa: S105
PLANTED = (
    f"s3://AKIA:{SECRET}@bucket/x",
    f"s3a://{SECRET}@bucket/x",
    f"s3://AKIA:ab/{SECRET}@bucket/x",
    f"gs://bucket?token={SECRET}",
    f"https://bucket.example/x?X-Amz-Signature={SECRET}&X-Amz-Credential={SECRET}",
    f"hdfs://user:{SECRET}@names:8020/x",
    f"thrift://user:{SECRET}@127.0.0.1:1",
    f"relative/path?sig={SECRET}",
    f"x://{SECRET}@",
)


@pytest.fixture(params=["console", "json"])
def log(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What the service logs, as its command does."""
    lines, before = io.StringIO(), (structlog.get_config(), logging.root.handlers[:], logging.root.level)
    with redirect_stderr(lines):
        logs.configure(request.param, "debug")
        yield lines
    structlog.configure(**before[0])
    logging.root.handlers[:] = before[1]
    logging.root.setLevel(before[2])


def told(call: Callable[[], object]) -> str:
    """All that comes back."""
    try:
        return repr(call())
    except grpc.RpcError as error:
        return f"{error!r} {error.details()} {error.trailing_metadata()}"  # type: ignore[attr-defined]
    except TException as error:
        return f"{error!r} {error}"


@pytest.mark.parametrize("text", PLANTED, ids=range(len(PLANTED)))
def test_no_planted_secret_comes_back(
    log: io.StringIO,
    capsys: pytest.CaptureFixture[str],
    service: Service,
    wire: Wire,
    client: Client,
    text: str,
) -> None:
    client.create_table(table("t", keys="d string"))
    altered = client.get_table("default", "t")
    altered.sd.location = text
    webhook = s.WebhookSink(url=text)
    answers = [
        told(call)
        for call in (
            lambda: wire.create(location=text),
            lambda: wire.catalog.CreateDatabase(c.CreateDatabaseRequest(database=c.Database(name="d", location=text))),
            lambda: wire.catalog.CreateDatabase(c.CreateDatabaseRequest(database=c.Database(name=text))),
            lambda: wire.catalog.GetTable(c.GetTableRequest(name=p.TableName(database=text, table=text))),
            lambda: wire.plan(f"id = '{text}'"),
            lambda: wire.plan(f"no_such = '{text}"),
            lambda: client.create_database(database("d", locationUri=text)),
            lambda: client.create_table(table("u", location=text)),
            lambda: client.create_table(table("u", location=text, kind="EXTERNAL_TABLE")),
            lambda: client.create_table(table("u", location=text, parameters={"lakemark.type": "lake"})),
            lambda: client.alter_table("default", "t", altered),
            lambda: client.add_partition(partition(["1"], of="t", location=text)),
            lambda: client.get_table("default", text),
            lambda: client.get_database(text),
            lambda: client.get_partitions_by_filter("default", "t", f'd = "{text}', -1),
            lambda: client.get_table_names_by_filter("default", text, -1),
            lambda: SinkServiceStub(wire.channel).CreateSink(s.CreateSinkRequest(name="x", webhook=webhook)),
            lambda: SinkServiceStub(wire.channel).CreateSink(s.CreateSinkRequest(name=text, webhook=webhook)),
            lambda: ListenerServiceStub(wire.channel).CreateListener(n.CreateListenerRequest(name="x", uri=text)),
            lambda: MountServiceStub(wire.channel).CreateMount(m.CreateMountRequest(name="x", uri=text)),
        )
    ]
    for arguments in (
        ["--server", service.grpc_address, "databases", "create", "d2", "--location", text],
        ["--server", service.grpc_address, "databases", "drop", text],
        ["--server", text, "databases", "list"],
    ):
        assert run(arguments) != 0
    shown = capsys.readouterr()
    answers += [shown.out, shown.err]
    leaks = [answer for answer in answers if SECRET in answer]
    assert leaks == []
    assert (shown.err + log.getvalue()).count("error: ") == 3, "of the command line"
    assert SECRET not in log.getvalue()


def test_what_libraries_say_and_tracebacks_are_redacted_in_the_log(log: io.StringIO) -> None:
    for text in PLANTED:
        record = DatabaseRecord(name="d", location=text)
        structlog.get_logger("x").warning("it failed", location=text, record=record, places=[text], of={"it": text})
        logging.getLogger("library").error("cannot reach %r", text)
        try:
            raise ValueError(text)  # noqa: TRY301
        except ValueError as error:
            structlog.get_logger("x").exception("it failed", reason=str(error))
            logging.getLogger("library").exception("it failed")
    assert "it failed" in log.getvalue()
    assert SECRET not in log.getvalue()
    assert SECRET not in str(Unavailable(f"cannot reach {PLANTED}", location=PLANTED[0]).details)
