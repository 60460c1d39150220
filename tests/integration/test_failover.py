"""Two addresses of one store: what the first service did without being able to answer is still done only once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from lakemark import Client, UncommittedWarning
from lakemark.client.calls import Backoff
from lakemark_server.process import Service
from tests.integration.grpc_server import running_service

QUICK = Backoff(0.01, 0.05, 5)
LOST = ("CreateTable", "OpenInstant", "StageFiles", "Commit", "RollbackInstant", "CreateReference")


class DyingService(grpc.GenericRpcHandler):
    """A service on the store of another one. It applies every request, and dies before it answers ``method``."""

    def __init__(self, address: str, method: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._method = method
        self.done = 0
        self.server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[self])
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method

        def call(request: bytes, context: grpc.ServicerContext) -> bytes:
            answer: bytes = self._channel.unary_unary(path)(request, timeout=30)
            if path.endswith(f"/{self._method}"):
                self.done += 1
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            return answer

        return grpc.unary_unary_rpc_method_handler(call)

    def close(self) -> None:
        self.server.stop(None).wait()
        self._channel.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running_service(tmp_path) as running:
        yield running


@pytest.mark.parametrize("method", LOST)
def test_what_the_first_service_did_is_not_done_again(service: Service, method: str) -> None:
    with ExitStack() as stack:
        dying = DyingService(service.grpc_address, method)
        stack.callback(dying.close)
        client = stack.enter_context(Client(f"127.0.0.1:{dying.port},{service.grpc_address}", 30, QUICK))
        client.tables.create("default.t", {"id": "bigint"})
        with client.begin("default.t") as writer:
            writer.write(pa.table({"id": [1]}))
            writer.write(pa.table({"id": [2]}))
            assert writer.commit().version == 1
        with pytest.warns(UncommittedWarning), client.begin("default.t") as forgotten:
            forgotten.write(pa.table({"id": [3]}))
        client.branches.create("default.t", "dev")

        assert dying.done == 1, "it was done there, and then asked of the other one"
        assert sorted(client.read("default.t").column("id").to_pylist()) == [1, 2]
        assert [one.version for one in client.timeline.versions("default.t")] == [1]
        assert [one.state for one in client.timeline.instants("default.t")] == ["completed", "rolled_back"]
        assert [one.name for one in client.branches.list("default.t")] == ["main", "dev"]
