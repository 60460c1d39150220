"""A service whose warehouse lies in a bucket, and the proxy between it, its client and the S3 server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakemark import Client
from lakemark_core import storage
from lakemark_server.process import Service
from tests.integration.grpc_server import connected, running_service
from tests.programs import ProgramMissing
from tests.s3_proxy import S3Proxy
from tests.s3_server import ACCESS_KEY, KINDS, REGION, SECRET_KEY, Bucket, S3Server, server_of

NEVER_S = 3_600.0
SERVERS = [KINDS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])]
"""The fast server in the default suite, real ones in the slow suite."""


@dataclass(frozen=True, slots=True)
class S3World:
    """``proxy`` sees what the service and its client ask the S3 server for; ``bucket`` looks past it."""

    service: Service
    client: Client
    proxy: S3Proxy
    bucket: Bucket

    def table(self, name: str = "db.t", **more: Any) -> str:
        self.client.tables.create(name, {"id": "bigint", "month": "int"}, partitioned_by=["month"], **more)
        return name

    def append(self, name: str, *months: int, operation: str = "append") -> int:
        """One row for each month, in a file of its own; the version."""
        with self.client.begin(name, operation) as writer:  # type: ignore[arg-type]
            writer.write(rows(*months))
            return writer.commit().version

    def months(self, name: str, **at: Any) -> list[int]:
        return sorted(self.client.read(name, **at).column("month").to_pylist())

    def requests_of(self, act: Callable[[], object]) -> dict[str, int]:
        """How many requests of each S3 operation ``act`` takes."""
        self.proxy.clear()
        act()
        return self.proxy.counts


def rows(*months: int) -> pa.Table:
    return pa.table({"id": pa.array(range(len(months)), pa.int64()), "month": pa.array(months, pa.int32())})


@contextmanager
def running_server(kind: str) -> Iterator[S3Server]:
    """A server of ``tests.s3_server.KINDS`` for the block; without it the test is skipped."""
    try:
        server = server_of(kind)
    except ProgramMissing as missing:
        pytest.skip(str(missing))
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session", params=SERVERS)
def s3_server(request: pytest.FixtureRequest) -> Iterator[S3Server]:
    with running_server(request.param) as server:
        yield server


@pytest.fixture
def bucket(s3_server: S3Server) -> Bucket:
    return s3_server.bucket("lake")


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    made = S3Proxy(s3_server.endpoint)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _process_is_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the machine knows of AWS is not for tests, and how a test reaches its store is not for others."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    storage.configure(None)  # a service that another test ran in this process has left its settings
    yield
    storage.configure(None)


def s3_settings(endpoint: str) -> dict[str, Any]:
    """Of a service: how it reaches the server behind ``endpoint``."""
    return {
        "s3_endpoint": endpoint,
        "s3_region": REGION,
        "s3_access_key_id": ACCESS_KEY,
        "s3_secret_access_key": SECRET_KEY,
        "s3_request_timeout": 5.0,
    }


@pytest.fixture
def start(tmp_path: Path, proxy: S3Proxy, bucket: Bucket) -> Iterator[Callable[..., S3World]]:
    """Starts a service with these settings; a sweep comes only if they ask for it."""
    with ExitStack() as stack:

        def started(**settings: Any) -> S3World:
            given = {"warehouse": f"{bucket.uri}/wh", "sweep_interval_s": NEVER_S, **s3_settings(proxy.endpoint)}
            service = stack.enter_context(running_service(tmp_path, **{**given, **settings}))
            client = stack.enter_context(connected(service))
            client.databases.create("db")
            return S3World(service, client, proxy, bucket)

        yield started


@pytest.fixture
def world(start: Callable[..., S3World]) -> S3World:
    return start()
