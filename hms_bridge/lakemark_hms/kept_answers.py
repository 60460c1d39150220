"""Answers that are kept in memory, by the bytes of their requests, and given again while the store has not changed.

Only answers of which that is known are kept: whoever makes one calls ``lakemark_server.kv.lasts``, which says that it
follows from the request and from what was read. They are kept with the keys and values that were read for them
(``lakemark_server.kv.readings``), so a kept answer is as fresh as a new one. On SQLite the server's loop gives it
without waiting; elsewhere one read of the store's version serves all calls that wait.

A call that is answered from here counts against its tenant's rate and in the metrics like any other. It never waits, so
it takes no thread and no place among those that run. No handler sees it: an answer that depends on who asks must not
last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct as Layout
from typing import Final

from lakemark_core.errors import LakemarkError
from lakemark_hms.admission import Admission, tenant_of
from lakemark_hms.federation.mounted import Mounted
from lakemark_hms.federation.places import database_in
from lakemark_hms.names import database_name
from lakemark_hms.wire.dispatch import Call, Handler
from lakemark_hms.wire.inbox import Message
from lakemark_hms.wire.ready import REQUEST_BYTES_MAX, request_key
from lakemark_server.file_index.cache import ByteLru
from lakemark_server.kv import Readings, Store, hold_together, noting

KEPT: Final = frozenset(
    (
        *("get_table", "get_table_req", "get_database", "get_database_req"),
        *("get_partition", "get_partition_req", "get_partition_by_name"),
        *("get_partitions_by_filter", "get_partitions_by_filter_req"),
    )
)
"""The methods of which answers are kept, if they last. Each is about one database."""

BYTES_MAX_DEFAULT: Final = 64 << 20
_ANSWER_BYTES_MAX: Final = 256 << 10
_OVERHEAD_BYTES: Final = 1_500  # of the objects of a kept answer
_KEYS_MAX: Final = 16
_SEQID: Final = Layout("!i")

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class KeptAnswer:
    """``head`` and ``body`` are the reply before and after its sequence number. ``old``: it is known not to hold."""

    method: str
    tenant: str
    database: str
    head: bytes
    body: bytes
    readings: Readings
    size_bytes: int
    old: bool = False


class KeptAnswers:
    """A ``ReadyAnswers``; thread-safe. It keeps up to ``bytes_max`` bytes.

    ``mounted``: databases of outside Metastores, about which nothing is kept.
    """

    def __init__(
        self,
        store: Store,
        bytes_max: int = BYTES_MAX_DEFAULT,
        *,
        admission: Admission | None = None,
        mounted: Mounted | None = None,
    ) -> None:
        self._store = store
        self._admission = admission
        self._mounted = mounted
        self._kept: ByteLru[bytes, KeptAnswer] = ByteLru(bytes_max, lambda kept: kept.size_bytes)

    @property
    def size_bytes(self) -> int:
        """How much memory the kept answers take, roughly."""
        return self._kept.bytes

    def keeping(self, handler: Handler) -> Handler:
        """The handler, of whose answers those are kept that last."""

        def handle(call: Call) -> object:
            key = request_key(call.message)
            if key is None:
                return handler(call)
            begun = self._store.writes_begun()
            with noting() as noted:
                result = handler(call)
            if noted.lasting and isinstance(result, bytes) and len(noted.values) <= _KEYS_MAX:
                readings = noted.readings(begun)
                if readings is not None:
                    self._keep(key, call, result, readings)
            return result

        return handle

    def _keep(self, key: bytes, call: Call, reply: bytes, readings: Readings) -> None:
        at = 8 + len(call.name)
        size_bytes = _OVERHEAD_BYTES + len(key) + len(reply) + readings.size_bytes
        if size_bytes <= _ANSWER_BYTES_MAX:
            database = database_name(database_in(call.name, call.args)).name
            tenant = tenant_of(call)
            kept = KeptAnswer(call.name, tenant, database, reply[:at], reply[at + 4 :], readings, size_bytes)
            self._kept.put(key, kept)

    def at_once(self, request: bytes) -> bytes | None:
        """See ``ReadyAnswers``. The key of a kept answer is that of a whole request, so bytes with this key are one."""
        if not 12 < len(request) <= REQUEST_BYTES_MAX:
            return None
        at = 8 + request[7]
        kept = self._kept.get(request[:at] + request[at + 4 :])
        return None if kept is None or kept.old else self._now(kept, request[at : at + 4])

    def kept(self, message: Message) -> KeptAnswer | None:
        """See ``ReadyAnswers``."""
        key = request_key(message)
        kept = None if key is None else self._kept.get(key)
        return None if kept is None or kept.old else kept

    def now(self, kept: KeptAnswer, seqid: int) -> bytes | None:
        """See ``ReadyAnswers``."""
        return self._now(kept, _SEQID.pack(seqid))

    def _now(self, kept: KeptAnswer, seqid: bytes) -> bytes | None:
        since_s = time.perf_counter()
        try:
            holds = kept.readings.hold_at_once(self._store)
            if holds is False:
                kept.old = True
            return self._given(kept, seqid, since_s) if holds else None
        except Exception:  # the caller serves all connections
            log.exception("a kept answer to %s could not be checked", kept.method)
            return None

    def answers(self, asked: Sequence[tuple[KeptAnswer, Message]]) -> Sequence[bytes | None]:
        """See ``ReadyAnswers``."""
        since_s = time.perf_counter()
        different = list(dict.fromkeys(kept for kept, _ in asked if not kept.old))
        try:
            if different:
                holding = hold_together(self._store, [kept.readings for kept in different])
                for kept, holds in zip(different, holding, strict=True):
                    kept.old = not holds
            return [
                None if kept.old else self._given(kept, _SEQID.pack(message.header.seqid), since_s)
                for kept, message in asked
            ]
        except LakemarkError:  # calls that are made will say why
            return [None] * len(asked)
        except Exception:
            log.exception("kept answers could not be checked")
            return [None] * len(asked)

    def _given(self, kept: KeptAnswer, seqid: bytes, since_s: float) -> bytes | None:
        """The whole reply, counted; None if it may not be given now: then the call is made, and says why."""
        if self._mounted is not None and self._mounted.may_have(kept.database):
            return None
        if self._admission is not None and not self._admission.answered(kept.method, kept.tenant, since_s):
            return None
        return b"".join((kept.head, seqid, kept.body))
