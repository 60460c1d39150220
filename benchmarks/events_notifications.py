"""How fast Hive's notifications are read: a part of ``scripts/bench events``.

The log has changes of tables and partitions in equal parts. It is read in calls of 1,000 notifications, which is what
Impala and Hive's replication ask for. ``notification_first_per_s``: their messages are made. ``notification_per_s``:
they were made for an earlier reader, as is usual where several clusters follow one log. ``notification_passed_per_s``:
ids that a filter passes over. After the first reading the client only sends and receives bytes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from hmsclient.genthrift.hive_metastore.ttypes import NotificationEventRequest

from benchmarks import hms_load
from benchmarks.hms_load import DATABASE, TABLE, System, Wire
from benchmarks.service import Service, running_service
from lakemark_hms.wire import codec
from lakemark_thrift import ttypes
from lakemark_thrift.services import get_next_notification_args

EVENTS: Final = 2_000
A_CALL: Final = 1_000
SECONDS: Final = 3.0


def rates(service: Service, place: str, events: int = EVENTS, seconds: float = SECONDS) -> dict[str, float]:
    """Notifications per second. ``service`` serves the Metastore protocol; ``place``: a URI below which tables lie."""
    system = System("notifications", service.hms_port, place)
    hms_load.create_table(system)
    with hms_load.connected(service.hms_port) as client:
        start = client.get_current_notificationEventId().eventId
        _change(client, system, events)
        began = time.perf_counter()
        pages = _read(client, start)
        first_s = time.perf_counter() - began
    # The last page is full, so that each call of the second reading answers as many.
    after = max(page[-1] for page in pages) - A_CALL
    kept = hms_load.rate(service.hms_port, 1, seconds, hms_load.recorded(service.hms_port, _ask(after))).calls_per_s
    nothing = hms_load.recorded(service.hms_port, _ask_nothing(start))
    with closing(Wire(service.hms_port)) as wire:
        passed, began = 0, time.perf_counter()
        while time.perf_counter() < began + seconds:
            wire.call(*nothing)
            passed += events
        passed_s = time.perf_counter() - began
    return {
        "notification_first_per_s": round(sum(map(len, pages)) / first_s),
        "notification_per_s": round(kept * A_CALL),
        "notification_passed_per_s": round(passed / passed_s),
    }


def _change(client: Any, system: System, events: int) -> None:
    """One event for each call."""
    table = client.get_table(DATABASE, TABLE)
    for number in range(events // 2):
        table.parameters["number"] = str(number)
        client.alter_table(DATABASE, TABLE, table)
        client.add_partition(hms_load.partition(system, f"day-{number}", "0"))


def _read(client: Any, start: int) -> list[list[int]]:
    pages: list[list[int]] = []
    while True:
        last = pages[-1][-1] if pages else start
        events = client.get_next_notification(NotificationEventRequest(last, A_CALL)).events
        if not events:
            return pages
        pages.append([event.eventId for event in events])


def _ask(after: int) -> Callable[[Any], object]:
    def call(client: Any) -> object:
        events = client.get_next_notification(NotificationEventRequest(after, A_CALL)).events
        assert len(events) == A_CALL
        return events

    return call


def _ask_nothing(after: int) -> Callable[[Any], object]:
    """Asks with a filter, which Hive 2.3's bindings lack."""

    def call(client: Any) -> object:
        request = ttypes.NotificationEventRequest(lastEvent=after, maxEvents=A_CALL, dbName="no_database")
        transport = client._oprot.trans
        transport.write(codec.encode_call("get_next_notification", 1, get_next_notification_args(rqst=request)))
        transport.flush()
        events = client.recv_get_next_notification().events
        assert events == []
        return events

    return call


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory,
        running_service(Path(directory), hms=True) as service,
    ):
        for name, value in rates(service, f"file:{directory}/tables").items():
            print(f"{name:>28}  {value}")


if __name__ == "__main__":
    main()
