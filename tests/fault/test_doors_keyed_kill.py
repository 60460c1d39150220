"""kill -9 of the service while applications change rows by key through doors.

Each application has keys of its own, in buckets that all of them write, so that it knows what each of its rows may be.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from lakemark import connect
from tests.fault.killable import Killable
from tests.fault.test_doors_kill import DOUBT_S, Application
from tests.lengths import long, slow
from tests.stores import store_url

APPLICATIONS: Final = 6
KEYS: Final = 7
KEYED: Final = {
    "lakemark.primary-key": "id",
    "lakemark.bucket.count": "2",
    "lakemark.write.mode": "merge-on-read",
    "lakemark.conflict.policy": "row",
}


class Changes(Application):
    """Upserts and deletes rows of its own. ``may_be``: by key, what a row may be; None: it is not there."""

    def __init__(self, service: Killable, number: int) -> None:
        super().__init__(service, number, threads=1)
        self._chance = random.Random(number)
        self._first = number * 1_000
        self.may_be: dict[int, list[int | None]] = {}

    def _statement(self, rows: list[int]) -> None:
        """``rows``: numbers that were not given before."""
        number = rows[0]
        keys = self._chance.sample(range(self._first, self._first + KEYS), 3)
        deletes = self._chance.random() < 0.3
        door = "k__delete" if deletes else "k__upsert"
        outcome = None if deletes else number
        for key in keys:
            self.may_be.setdefault(key, [None]).append(outcome)
        table = pa.table({"id": pa.array(keys, pa.int64())})
        if not deletes:
            table = table.append_column("v", pa.array([number] * len(keys), pa.int64()))
        directory = self._call(lambda client: client.look_up(door))
        self._client.write_table(directory, table)
        shown = self._call(lambda client: client.client.get_table("default", door))
        shown.parameters = {}
        self._call(lambda client: client.send(door, shown))
        for key in keys:
            self.may_be[key] = [outcome]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Killable]:
    service = Killable(store_url(tmp_path), f"{tmp_path}/warehouse", hms_enabled=True, hms_port=0, door_doubt_s=DOUBT_S)
    service.start()
    yield service
    service.end()


@pytest.mark.parametrize("kills", [5, pytest.param(long(50), marks=slow(1_200))], ids=["few", "many"])
def test_each_row_is_what_it_may_be(service: Killable, kills: int) -> None:
    chance = random.Random(kills)
    with connect(service.address()) as client:
        client.tables.create("default.k", "id bigint, v bigint", properties=KEYED)
    applications = [Changes(service, number) for number in range(APPLICATIONS)]
    for application in applications:
        application.threads[0].start()
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.3, 1.2))  # statements of all applications are at every step of theirs
            service.kill()
            service.start()
        time.sleep(1)
    finally:
        for application in applications:
            application.stop.set()
        for application in applications:
            application.threads[0].join(60)
    assert [error for application in applications for error in application.failed] == []
    with connect(service.address()) as client:
        read = client.read("default.k").to_pylist()
    values = {row["id"]: row["v"] for row in read}
    assert len(values) == len(read), "a key is there twice"
    done = sum(len(application.done) for application in applications) // 3
    print(f"{done} statements told, {service.kills} kills")
    for application in applications:
        for key, may_be in application.may_be.items():
            assert values.get(key) in may_be, f"key {key}"
    assert done > kills
