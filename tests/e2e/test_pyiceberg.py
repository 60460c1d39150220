"""PyIceberg's Hive catalog on our Metastore: for each commit it locks the table, reads it, alters it and unlocks it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.peers import environment

from lakemark_server.process import Service
from lakemark_server.settings import Settings
from lakemark_server.transactions.conflicts import Component, LockType, Place
from lakemark_server.transactions.requests import Client, LockRequest
from tests.stores import store_url

WRITERS, APPENDS = 4, 4
PROGRAM = Path(__file__).with_name("pyiceberg_client.py")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    ports = {"grpc_port": 0, "hms_port": 0}
    settings = Settings(store=store_url(tmp_path), warehouse=str(tmp_path / "warehouse"), cores="all", **ports)
    with Service(settings) as running:
        yield running


def _start(service: Service, task: str, writer: int = 0, appends: int = 0) -> subprocess.Popen[str]:
    command = [environment.interpreter(), PROGRAM, service.hms_uri, task, str(writer), str(appends)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _run(service: Service, task: str) -> str:
    return _ended(_start(service, task))


def _ended(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    return output.strip()


def test_concurrent_appends_lose_nothing(service: Service) -> None:
    _run(service, "create")
    writers = [_start(service, "append", writer, APPENDS) for writer in range(WRITERS)]
    for process in writers:
        _ended(process)
    expected = [(writer, number) for writer in range(WRITERS) for number in range(APPENDS)]
    before, after = _run(service, "read,widen,read").splitlines()
    assert before == f"{expected} ['writer', 'number']"
    assert after == f"{expected} ['writer', 'number', 'note']"
    assert list(service.transactions.locks.shown()) == []


def test_a_writer_that_dies_with_its_lock_holds_nobody_up_for_long(tmp_path: Path) -> None:
    """Its lock is lost after the time-out, although nobody frees it."""
    settings = Settings(
        store=store_url(tmp_path), warehouse=str(tmp_path / "warehouse"), grpc_port=0, hms_port=0, txn_timeout_s=1.0
    )
    with Service(settings) as service:
        _run(service, "create")
        place = Place("hive", "ice", "events")
        service.transactions.locks.lock(LockRequest([Component(place, LockType.EXCLUSIVE)], Client("dead", "here")))
        _ended(_start(service, "append", 1, 1))
        assert _run(service, "read") == "[(1, 0)] ['writer', 'number']"
