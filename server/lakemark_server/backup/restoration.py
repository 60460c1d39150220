"""Restores a backup into a store of any backend, in bounded transactions. A restore that was cut off can go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, TypeVar

from lakemark_core.errors import CorruptStore, NotEmpty
from lakemark_proto.v1.events_pb2 import STORE_RESTORED, Event
from lakemark_server.context.clock import ClockMs, now_ms
from lakemark_server.kv import CommitUnknownResult, KeyValue, Store, Transaction
from lakemark_server.kv.api import KEYS_END
from lakemark_server.store import event_log
from lakemark_server.store.keyspace import DROPPED_DUE, EVENT_ENDS, RESTORED
from lakemark_server.verify import verify

from . import marker
from .chunks import chunks, pairs_of
from .errors import BackupDamaged, HalfRestored
from .manifest import Manifest
from .marker import Marker
from .repository import Repository

TRANSACTION_BYTES_AIM: Final = 800_000
TRANSACTION_PAIRS_MAX: Final = 10_000
_CLEARED_AT_ONCE: Final = 1_000
_UNKNOWN_MAX: Final = 10

T = TypeVar("T")


def restore(
    store: Store, repository: Repository, manifest: Manifest, *, check: bool = True, clock: ClockMs = now_ms
) -> None:
    """Fills an empty store, or goes on with a store into which this backup was being restored.

    The store cannot be served before it is complete. With ``check`` it is compared with the backup, and all invariants
    are checked, before that, too. Raises NotEmpty, HalfRestored (by another backup), BackupDamaged, CorruptStore, and
    what the store raises.
    """
    now = _begin(store, Marker(manifest.id, manifest.content, 0))
    for entry in manifest.chunks[now.chunks :]:
        following = Marker(now.backup, now.content, now.chunks + 1)
        groups = list(_groups(pairs_of(repository.read(entry))))
        for number, group in enumerate(groups, 1):
            _write(store, group, now, following if number == len(groups) else now)
        now = following
    if check:
        compare(store, manifest)
        problems = verify(store)
        if problems:
            raise CorruptStore(
                f"the restored store is as the backup is, but {len(problems)} invariants do not hold in it: "
                f"{problems[0]}. Restore an older backup into another store, or take it as it is with --no-verify"
            )
    _settled(store, lambda tx: _end(tx, clock()))


def _end(tx: Transaction, now_ms: int) -> None:
    """Ends the restore: the store may be served from now on. Events get another epoch.

    Dropped tables whose time has passed since the backup are kept once more for as long as they were to be kept
    (``catalog.dropped_tables``), because tables that were brought back after the backup are dropped in it.
    """
    if marker.get(tx) is None:  # it was applied before
        return
    tx.clear(marker.KEY)
    epoch = event_log.begin_epoch(tx, now_ms)
    for key, _ in tx.get_range(*EVENT_ENDS.range()):
        catalog = str(EVENT_ENDS.unpack(key)[0])
        event_log.append(tx, epoch, catalog, [Event(kind=STORE_RESTORED, catalog=catalog, time_ms=now_ms)])
    if tx.get_range(*DROPPED_DUE.range(), limit=1):
        tx.set(RESTORED, now_ms.to_bytes(8, "big"))


def start_over(store: Store) -> None:
    """Empties a store that was being restored. Does nothing to any other store."""
    while store.read(marker.get) is not None:
        rest = store.read(lambda tx: tx.get_range(b"", KEYS_END, limit=_CLEARED_AT_ONCE))
        keys = [key for key, _ in rest if key != marker.KEY]
        _settled(store, lambda tx, keys=keys: _clear(tx, keys or [marker.KEY]))  # type: ignore[misc]


def compare(store: Store, manifest: Manifest) -> None:
    """Raises CorruptStore unless the store holds exactly what the backup holds."""
    with store.export() as export:
        pairs = (pair for pair in chain.from_iterable(export.pages) if pair[0] != marker.KEY)
        names = [chunk.name for chunk in chunks(pairs)]
    if names != [entry.name for entry in manifest.chunks]:
        raise CorruptStore(f"the store is not what backup {manifest.id} holds: another program writes to it")


def _begin(store: Store, wanted: Marker) -> Marker:
    def body(tx: Transaction) -> Marker:
        known = marker.get(tx)
        if known is None:
            if tx.get_range(b"", KEYS_END, limit=1):
                raise NotEmpty("the store is not empty; a backup is restored into a new one, which was never served")
            marker.put(tx, wanted)
            return wanted
        if not known.same_backup(wanted):
            raise HalfRestored(
                f"the store holds a part of backup {known.backup}; go on with that one (--backup {known.backup}), or "
                "begin anew with --start-over",
                backup=known.backup,
            )
        return known

    return _settled(store, body)


def _write(store: Store, group: list[KeyValue], now: Marker, following: Marker) -> None:
    def body(tx: Transaction) -> None:
        known = marker.get(tx)
        if known not in (now, following):
            raise HalfRestored("another process restores into this store at the same time, or has begun anew")
        for key, value in group:
            tx.set(key, value)
        marker.put(tx, following)

    _settled(store, body)


def _clear(tx: Transaction, keys: list[bytes]) -> None:
    if marker.get(tx) is not None:
        for key in keys:
            tx.clear(key)


def _groups(pairs: Iterator[KeyValue]) -> Iterator[list[KeyValue]]:
    """The pairs in groups that each fit into a transaction."""
    group: list[KeyValue] = []
    size = 0
    last = b""
    for key, value in pairs:
        if key <= last and last:
            raise BackupDamaged("the backup is damaged: its keys are not in order")
        last = key
        if size >= TRANSACTION_BYTES_AIM or len(group) >= TRANSACTION_PAIRS_MAX:
            yield group
            group, size = [], 0
        group.append((key, value))
        size += 3 * len(key) + len(value)
    if group:
        yield group


def _settled(store: Store, body: Callable[[Transaction], T]) -> T:
    """Runs the transaction until its outcome is known. ``body`` must allow to be applied twice."""
    for _ in range(_UNKNOWN_MAX):
        try:
            return store.transact(body)
        except CommitUnknownResult as error:
            unknown = error
    raise unknown
