"""The mounted databases of a store, and answers of the Metastores that have them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from lakemark_hms.federation.places import renamed, with_database
from lakemark_hms.outside import Call, Metastore, OutsideRefused, OutsideUnavailable
from lakemark_hms.wire.codec import REPLY as REPLY_KIND
from lakemark_hms.wire.codec import encode_reply, encode_struct, message_head
from lakemark_proto.v1.catalog_pb2 import WAREHOUSE, TableSummary
from lakemark_proto.v1.mounts_pb2 import Mount
from lakemark_server.catalog.names import DEFAULT_CATALOG
from lakemark_server.file_index.cache import ByteLru
from lakemark_server.mounts.registry import Mounts
from lakemark_thrift import ttypes
from lakemark_thrift.base import DeclaredError, Struct
from lakemark_thrift.services import METHODS
from lakemark_thrift.ttypes import NoSuchObjectException

CONNECTIONS_MAX: Final = 8
"""To one outside Metastore. More calls wait for one of them, and not for long."""

TIMEOUT_S: Final = 30.0
WAIT_S: Final = 5.0
CACHE_BYTES: Final = 64 << 20
_KNOWN_S: Final = 1.0
_IDLE_MAX: Final = 100


class _Kept(NamedTuple):
    until: float
    body: bytes


class Mounted:
    """Thread-safe. What is mounted is read from the store at most every second."""

    def __init__(self, mounts: Mounts, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._mounts, self._clock_s = mounts, clock_s
        self._known: dict[str, tuple[float, dict[str, Mount]]] = {}
        self._pools: dict[str, _Pool] = {}
        self._lock = threading.Lock()
        self._answers: ByteLru[tuple[bytes, str, bytes], _Kept] = ByteLru(
            CACHE_BYTES, lambda kept: len(kept.body) + 200
        )

    def all(self, catalog: str) -> dict[str, Mount]:
        """The mounts of a catalog, by name."""
        known = self._known.get(catalog)
        now = self._clock_s()
        if known is None or now >= known[0]:
            mounts = {mount.name: mount for mount in self._mounts.list(catalog)}
            if len(self._known) >= _IDLE_MAX:
                self._known.clear()
            self._known[catalog] = known = (now + _KNOWN_S, mounts)
        return known[1]

    def may_have(self, database: str) -> bool:
        """Whether the database of the default catalog is mounted, or that is not known without reading the store."""
        known = self._known.get(DEFAULT_CATALOG)
        return known is None or self._clock_s() >= known[0] or database in known[1]

    def names(self, catalog: str) -> Sequence[str]:
        """The names under which databases are mounted, in order."""
        return sorted(self.all(catalog or "hive"))

    def tables(self, catalog: str, database: str) -> Sequence[TableSummary] | None:
        """The tables of a mounted database, in order of name; None: nothing is mounted there.

        Raises OutsideUnavailable, OutsideRefused.
        """
        mount = self.all(catalog or "hive").get(database.lower())
        if mount is None:
            return None
        metas = self.call(mount, Call("get_table_meta", {"db_patterns": mount.database, "tbl_patterns": "*"}))
        return [
            TableSummary(name=meta.tableName, kind=WAREHOUSE, hive_type=meta.tableType)
            for meta in sorted(metas, key=lambda meta: str(meta.tableName))
        ]

    def call(self, mount: Mount, call: Call) -> Any:
        """What the outside Metastore answers. Raises OutsideUnavailable, OutsideRefused."""
        with self._connection(mount) as metastore:
            return metastore.run(call)

    def answer(self, mount: Mount, method: str, seqid: int, args: Struct) -> bytes:
        """The whole reply to a call about the mounted database, kept for a while.

        Raises the exception that the outside Metastore declared, with a text that says whose it is; OutsideUnavailable,
        OutsideRefused.
        """
        with_database(method, args, mount.database)
        key = (mount.SerializeToString(deterministic=True), method, encode_struct(args))
        kept = self._answers.get(key)
        if kept is None or self._clock_s() >= kept.until:
            sent = {slot: getattr(args, slot) for slot in args.__slots__}
            try:
                success = self.call(mount, Call(method, sent))
            except OutsideRefused as error:
                raise declared(error) from error
            body = encode_reply(METHODS[method], 0, renamed(success, mount.database, mount.name))
            kept = _Kept(self._clock_s() + mount.cache_ms / 1_000, body[len(message_head(method, REPLY_KIND, 0)) :])
            self._answers.put(key, kept)
        return message_head(method, REPLY_KIND, seqid) + kept.body

    @contextmanager
    def _connection(self, mount: Mount) -> Iterator[Metastore]:
        with self._lock:
            pool = self._pools.setdefault(mount.uri, _Pool(mount.uri))
        with pool.taken() as metastore:
            yield metastore


class _Pool:
    """Connections to one outside Metastore."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._idle: queue.LifoQueue[Metastore] = queue.LifoQueue()
        for _ in range(CONNECTIONS_MAX):
            self._idle.put(Metastore(uri, TIMEOUT_S))

    @contextmanager
    def taken(self) -> Iterator[Metastore]:
        try:
            metastore = self._idle.get(timeout=WAIT_S)
        except queue.Empty:
            raise OutsideUnavailable(
                f"the Metastore at {self._uri} is slow: all {CONNECTIONS_MAX} connections to it wait for answers",
                uri=self._uri,
            ) from None
        try:
            yield metastore
        finally:
            self._idle.put(metastore)


def declared(error: OutsideRefused) -> Exception:
    """The exception of the outside Metastore as our own answer; its text says that it is theirs."""
    kind = getattr(ttypes, error.details["error"], None)
    if isinstance(kind, type) and issubclass(kind, DeclaredError):
        text = error.message
        # Spark looks for these words to tell a missing function from a failure.
        if kind is NoSuchObjectException and error.details["method"] == "get_function":
            text += " does not exist"
        return kind(text)
    return error
