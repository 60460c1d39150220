"""The demo's watcher ends in silence when the demo closes its client and leaves the table."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest
from rich.console import Console

import lakemark
from lakemark.demo.report import Report
from lakemark.demo.watch import Watch
from tests.integration.grpc_server import running_service


def test_a_watcher_ends_with_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    with running_service(tmp_path) as service:
        with lakemark.connect(service.grpc_address) as client:
            client.databases.create("air")
            client.tables.create("air.flights", "id int")
            watch = Watch(client, "air.flights", Report(Console(file=io.StringIO()))).start()
            with client.begin("air.flights") as writer:
                writer.commit()
            assert watch.wait_for(1) == [1]
        watch.join()

    assert failures == []
