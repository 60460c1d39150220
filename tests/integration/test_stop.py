"""How a service process stops."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from lakemark_server.process import STOP_S
from tests.integration.grpc_server import running_service


def test_all_ports_stop_at_once_under_one_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(3, timeout=10)
    granted: list[float] = []

    def watch(port: Any) -> None:
        stop = port.stop

        def stop_with_others(grace_s: float) -> None:
            granted.append(grace_s)
            together.wait()
            stop(grace_s)

        monkeypatch.setattr(port, "stop", stop_with_others)

    with running_service(tmp_path / "service", hms_enabled=True, hms_port=0, hms_engine_port=0) as service:
        for port in (service.hms, service.engine, service.grpc):
            watch(port)
    assert granted == [STOP_S] * 3
