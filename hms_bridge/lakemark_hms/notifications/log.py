"""The notification log of a catalog, read: each event is one notification, and the offset of the event is its id.

So ids are dense, never repeat, and are the same in every process that serves the store. A notification is made when it
is asked for the first time, and kept for the next readers for as long as there is room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from lakemark_core.errors import EventsTrimmed, LakemarkError, OffsetUnknown, Outcome, UnknownOutcome
from lakemark_hms.notifications.formats import MessageFormat
from lakemark_hms.notifications.kinds import event_type, own_type
from lakemark_hms.notifications.messages import Messages
from lakemark_hms.notifications.tables import TableTexts
from lakemark_hms.services import Services
from lakemark_hms.wire.codec import WireError
from lakemark_hms.wire.cut import I32, I64, STRING
from lakemark_hms.wire.splice import i32_value, i64_value, string_value, struct, value_field
from lakemark_proto.v1.events_pb2 import Event
from lakemark_server.context import deadline
from lakemark_server.events.log import PAGE_PAIRS, EventLog, LogPosition
from lakemark_server.file_index.cache import ByteLru

NOTIFICATIONS_MAX: Final = 100_000
"""In one answer; a reader asks for more behind the last of them."""

ANSWER_BYTES_MAX: Final = 32 << 20
"""Of notifications in one answer, which holds at least one. Readers take 100 MB at most."""

_KEPT_BYTES_MAX: Final = 64 << 20
_KEPT_OVERHEAD: Final = 400
_PAIRS_MIN: Final = 16
_SECONDS_MAX: Final = 2**31 - 1

_log = structlog.get_logger(__name__)


class Notification(NamedTuple):
    """``struct`` is the serialized NotificationEvent."""

    type: str
    database: str
    table: str
    struct: bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which notifications a reader asks for; names in lower case. Empty: all. ``skipped``: types it does not want.

    ``or_no_database``: also those of no database.
    """

    database: str = ""
    tables: Collection[str] = ()
    types: Collection[str] = ()
    skipped: Collection[str] = ()
    or_no_database: bool = False

    def takes(self, event_type: str, database: str, table: str) -> bool:
        return (
            (not self.database or database == self.database or (self.or_no_database and not database))
            and (not self.tables or table in self.tables)
            and (not self.types or event_type in self.types)
            and event_type not in self.skipped
        )


class _Read(NamedTuple):
    """One notification: ``kept``, or to be made of its event. ``position``: where to read on behind it, if known."""

    offset: int
    kept: Notification | None
    event: Event
    position: LogPosition | None


_NOTHING: Final = Event()


class NotificationLog:
    """Thread-safe. ``message_format``: that of its messages."""

    def __init__(self, services: Services, message_format: MessageFormat) -> None:
        self._services = services
        self._format = message_format
        self._events = EventLog(services.catalog.store)
        self._kept: ByteLru[tuple[str, int], Notification] = ByteLru(_KEPT_BYTES_MAX, _kept_bytes)
        self._texts = TableTexts()

    def after(self, catalog: str, offset: int, wanted: Wanted, count_max: int) -> list[bytes]:
        """The serialized notifications behind ``offset``, in order; fewer than ``count_max`` if they are too large.

        Those that were trimmed are left out, so the first one may come later than the reader expects. Behind the last
        notification there are none.
        """
        try:
            return self._after(catalog, max(offset, 0), wanted, count_max)
        except OffsetUnknown:
            return []
        except EventsTrimmed:
            first = self._events.extent(catalog).first
            _log.warning("notifications are missing", catalog=catalog, asked_behind=offset, first=first, why="trimmed")
            return self._after(catalog, max(first - 1, offset), wanted, count_max)

    def _after(self, catalog: str, at: int, wanted: Wanted, count_max: int) -> list[bytes]:
        answer: list[bytes] = []
        size_bytes = 0
        messages = Messages(self._services, self._texts)
        for one in self._read(catalog, at, count_max):
            notification = one.kept
            if notification is None:
                names = (event_type(one.event), one.event.database, one.event.table)
                if not wanted.takes(*names):
                    continue
                notification = self._make(messages, one.event, names[0])
                self._kept.put((catalog, one.offset), notification)
            elif not wanted.takes(notification.type, notification.database, notification.table):
                continue
            size_bytes += len(notification.struct)
            if answer and size_bytes > ANSWER_BYTES_MAX:
                break
            answer.append(notification.struct)
            if len(answer) >= count_max:
                if one.position is not None:
                    self._events.remember(catalog, one.position)
                break
        return answer

    def _read(self, catalog: str, at: int, count_max: int) -> Iterator[_Read]:
        """What is behind ``at``."""
        while True:
            kept = self._kept.get((catalog, at + 1))
            while kept is not None:
                at += 1
                yield _Read(at, kept, _NOTHING, None)
                kept = self._kept.get((catalog, at + 1))
            deadline.current().check()
            position = self._events.begin(catalog, at)
            page = self._events.page(catalog, position, min(max(count_max, _PAIRS_MIN), PAGE_PAIRS))
            if not page.events and not page.whole:  # a batch of more pieces than were asked for
                page = self._events.page(catalog, position)
            here = position
            for event in page.events:
                at = event.offset
                key = page.places.get(at)
                here = LogPosition(at, key, at) if key is not None else here._replace(after=at)
                yield _Read(at, self._kept.get((catalog, at)), event, here)
            if page.whole:
                return

    def _make(self, messages: Messages, event: Event, kind: str) -> Notification:
        try:
            message = self._format.encode(messages.of(event, kind))
        except (LakemarkError, WireError, ValueError, LookupError) as error:
            if isinstance(error, LakemarkError) and error.outcome is not Outcome.FATAL:
                raise  # a later reader gets the details
            # Readers could never pass an id that cannot be told.
            _log.error("an event is told without details", catalog=event.catalog, offset=event.offset, error=str(error))
            kind = own_type(event.kind)
            message = self._format.encode(messages.of(event, kind))
        fields = [
            value_field(I64, 1, i64_value(event.offset)),
            value_field(I32, 2, i32_value(min(event.time_ms // 1_000, _SECONDS_MAX))),
            value_field(STRING, 3, string_value(kind)),
            value_field(STRING, 4, string_value(event.database)) if event.database else (),
            value_field(STRING, 5, string_value(event.table)) if event.table else (),
            value_field(STRING, 6, string_value(message)),
            value_field(STRING, 7, string_value(self._format.name)),
            value_field(STRING, 8, string_value(event.catalog)),
        ]
        return Notification(kind, event.database, event.table, b"".join(struct(*fields)))

    def last(self, catalog: str) -> int:
        """The id of the last notification; 0 if there is none."""
        return self.end(catalog).offset

    def end(self, catalog: str) -> LogPosition:
        """The end of the log."""
        return self._events.end(catalog)

    def count(self, catalog: str, offset: int, wanted: Wanted, upto: int | None) -> int:
        """How many notifications there are behind ``offset``, up to and including the id ``upto`` (None: to the end).

        Those that were trimmed do not count.
        """
        extent = self._events.extent(catalog)
        last = extent.last if upto is None else min(upto, extent.last)
        begin = max(offset, extent.first - 1)
        if last <= begin:
            return 0
        if not (wanted.database or wanted.tables or wanted.types or wanted.skipped):
            return last - begin
        count = 0
        position = self._events.begin(catalog, begin)
        while True:
            deadline.current().check()
            page = self._events.page(catalog, position)
            count += sum(
                1
                for event in page.events
                if event.offset <= last and wanted.takes(event_type(event), event.database, event.table)
            )
            position = page.position
            if page.whole or position.offset >= last:
                return count

    def ids_of(self, catalog: str, since: LogPosition, request_id: str) -> list[int]:
        """The ids of the notifications of one transaction, which was committed after ``since`` was the end."""
        position = since
        while True:
            page = self._events.page(catalog, position)
            ids = [event.offset for event in page.events if event.request_id == request_id]
            if ids:
                return ids
            if page.whole:
                raise UnknownOutcome(f"the event of request {request_id} is not in the log of catalog {catalog!r}")
            position = page.position


def _kept_bytes(notification: Notification) -> int:
    return len(notification.struct) + _KEPT_OVERHEAD
