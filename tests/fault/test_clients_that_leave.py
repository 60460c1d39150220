"""Clients that do not wait for their answers do no harm to the service."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from lakemark import connect
from lakemark_core.errors import LakemarkError
from tests.fault.killable import Killable
from tests.stores import store_url

CLIENTS: Final = 12
CALLS: Final = 250
TIMEOUT_S: Final = 0.02
"""Commits take about as long, so many calls are over in the middle of the service's work."""


def test_a_service_outlives_clients_that_go_in_the_middle_of_their_calls(tmp_path: Path) -> None:
    service = Killable(store_url(tmp_path), f"{tmp_path}/warehouse")
    service.start()
    try:
        with connect(service.address()) as client:
            client.databases.create("db")
            for number in range(4):
                client.tables.create(f"db.t{number}", "id bigint")
        with ThreadPoolExecutor(CLIENTS) as pool:
            given_up = sum(pool.map(lambda number: _impatient(service.address(), f"db.t{number % 4}"), range(CLIENTS)))
        with connect(service.address()) as client:
            versions = [len(client.timeline.versions(f"db.t{number}")) for number in range(4)]
        assert given_up > CALLS
        assert sum(versions) > 0
    finally:
        service.end()


def _impatient(address: str, table: str) -> int:
    """How many calls were not answered in time."""
    given_up = 0
    with connect(address, timeout=TIMEOUT_S) as client:
        for _ in range(CALLS):
            try:
                client.begin(table, "append").commit()
            except LakemarkError:
                given_up += 1
    return given_up
