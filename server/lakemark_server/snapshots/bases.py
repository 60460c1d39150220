"""Bases in the store: the record of each branch, indexes, pages, and sweeping.

A build writes its pages and its index under a new id that nobody else knows. Then one transaction publishes the record,
provided that the base which the build began with still stands. So any number of builders may run: one wins, and the
pages of the others are swept. Bases share pages: an index refers to pages of earlier bases.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Final

from lakemark_core.errors import CorruptStore
from lakemark_proto.store.v1.store_pb2 import BaseIndex, BaseRecord
from lakemark_server.catalog import lake
from lakemark_server.kv import ReadTransaction, Store, Transaction, blob
from lakemark_server.store.keyspace import BASE_BUILDS, BASE_INDEXES, BASE_PAGES, BASES

TRANSACTION_BYTES_AIM: Final = 900_000
_KEYS_A_CLEAR: Final = 1_000


def read_record(tx: ReadTransaction, table_id: int, key: str) -> BaseRecord | None:
    """The record of a branch's base, or None."""
    stored = tx.get(BASES.key(table_id, key), snapshot=True)
    return None if stored is None else BaseRecord.FromString(stored)


def read_index(tx: ReadTransaction, table_id: int, base_id: int) -> BaseIndex | None:
    """The index of a base; None if it was swept."""
    stored = blob.get(tx, BASE_INDEXES.space(table_id, base_id), snapshot=True)
    return None if stored is None else BaseIndex.FromString(stored)


def begin(store: Store, table_id: int, now_ms: int) -> int:
    """Registers a new build and returns its id. Raises TableNotFound."""
    base_id = secrets.randbits(62)

    def body(tx: Transaction) -> None:
        lake.get_record(tx, table_id)
        tx.set(BASE_BUILDS.key(table_id, base_id), now_ms.to_bytes(8, "big"))

    store.transact(body)
    return base_id


def write_pages(store: Store, table_id: int, base_id: int, first: int, pages: Sequence[bytes]) -> None:
    """Writes pages, numbered from ``first`` on, in transactions of bounded size. Raises BuildLost."""
    group: list[tuple[int, bytes]] = []
    size = 0
    for number, page in enumerate(pages, first):
        if group and size + len(page) > TRANSACTION_BYTES_AIM:
            _put(store, table_id, base_id, group)
            group, size = [], 0
        group.append((number, page))
        size += len(page)
    if group:
        _put(store, table_id, base_id, group)


def _put(store: Store, table_id: int, base_id: int, group: list[tuple[int, bytes]]) -> None:
    def body(tx: Transaction) -> None:
        _require_build(tx, table_id, base_id)
        for number, page in group:
            tx.set(BASE_PAGES.key(table_id, base_id, number), page)

    store.transact(body)


def _require_build(tx: Transaction, table_id: int, base_id: int) -> None:
    """Raises BuildLost if the build was given up: its pages would never be swept."""
    if tx.get(BASE_BUILDS.key(table_id, base_id)) is None:
        raise BuildLost(f"build {base_id} of a base was swept: it took too long, or the table was dropped")


class BuildLost(Exception):
    """The build was not published, and what it wrote is swept."""


def publish(
    store: Store,
    table_id: int,
    key: str,
    record: BaseRecord,
    index: BaseIndex,
    begun_with: int,
    shared: tuple[str, int] | None = None,
) -> None:
    """Makes this the base that readers begin at.

    ``shared``: (branch key, id) of the base of another branch whose pages it refers to. Raises BuildLost if another
    base was published meanwhile, because pages that this one refers to may be swept.
    """
    stored = index.SerializeToString()

    def write(tx: Transaction) -> None:
        _require_build(tx, table_id, record.base_id)
        blob.put(tx, BASE_INDEXES.space(table_id, record.base_id), stored)

    def body(tx: Transaction) -> None:
        _require_build(tx, table_id, record.base_id)
        for of, expected in ((key, begun_with), *([shared] if shared else ())):
            standing = BaseRecord.FromString(tx.get(BASES.key(table_id, of)) or b"")
            if standing.base_id != expected:
                raise BuildLost(f"base {standing.base_id} was published while {record.base_id} was built on {expected}")
        standing = BaseRecord.FromString(tx.get(BASES.key(table_id, key)) or b"")
        del record.old[:]
        record.old.extend(standing.old)
        if standing.base_id:
            record.old.add(
                base_id=standing.base_id,
                replaced_ms=record.created_ms,
                version=standing.version,
                created_ms=standing.created_ms,
            )
        tx.set(BASES.key(table_id, key), record.SerializeToString())
        tx.clear(BASE_BUILDS.key(table_id, record.base_id))

    store.transact(write)
    store.transact(body)


def sweep_build(store: Store, table_id: int, base_id: int) -> None:
    """Removes what an unpublished build has written."""

    def body(tx: Transaction) -> None:
        if tx.get(BASE_BUILDS.key(table_id, base_id)) is None:
            return  # the build was published
        tx.clear(BASE_BUILDS.key(table_id, base_id))
        blob.clear(tx, BASE_INDEXES.space(table_id, base_id))
        tx.clear_range(*BASE_PAGES.range(table_id, base_id))

    store.transact(body)


def sweep_old_builds(store: Store, table_id: int, before_ms: int) -> int:
    """Removes builds that began before this time. Returns how many."""
    pairs = store.read(lambda tx: tx.get_range(*BASE_BUILDS.range(table_id)))
    old = [key for key, value in pairs if int.from_bytes(value, "big") < before_ms]
    for key in old:
        base_id = BASE_BUILDS.unpack(key)[-1]
        if isinstance(base_id, int):
            sweep_build(store, table_id, base_id)
    return len(old)


def sweep_base(store: Store, table_id: int, base_id: int, kept: Iterable[BaseIndex]) -> int:
    """Removes an old base, with those of its pages that the kept indexes do not refer to. Returns how many pages."""
    index = store.read(lambda tx: read_index(tx, table_id, base_id))
    if index is None:
        return 0
    gone = sorted(pages_of(index) - set().union(*map(pages_of, kept)))
    for first in range(0, len(gone), _KEYS_A_CLEAR):
        some = gone[first : first + _KEYS_A_CLEAR]

        def body(tx: Transaction, some: Sequence[tuple[int, int]] = some) -> None:
            for owner, number in some:
                tx.clear(BASE_PAGES.key(table_id, owner, number))

        store.transact(body)
    store.transact(lambda tx: blob.clear(tx, BASE_INDEXES.space(table_id, base_id)))
    return len(gone)


def sweep_old(store: Store, table_id: int, before_ms: int) -> int:
    """Removes bases that were replaced before this time. Returns how many. Pages that other bases refer to stay."""
    stored = store.read(lambda tx: tx.get_range(*BASES.range(table_id)))
    records = {str(BASES.unpack(key)[-1]): BaseRecord.FromString(value) for key, value in stored}
    old = [
        (key, base.base_id) for key, record in records.items() for base in record.old if base.replaced_ms < before_ms
    ]
    gone = {base_id for _, base_id in old}
    staying = {base_id for record in records.values() for base_id in _named(record)} - gone
    if old:
        kept = [require_index(store.read(lambda tx, at=at: read_index(tx, table_id, at)), at) for at in staying]  # type: ignore[misc]
        for key, base_id in old:
            sweep_base(store, table_id, base_id, kept)
            _forget(store, table_id, key, base_id)
    return len(old)


def sweep_branch(store: Store, table_id: int, key: str) -> None:
    """Removes all bases of a dropped branch except their record. Pages that other bases refer to stay."""
    stored = store.read(lambda tx: tx.get_range(*BASES.range(table_id)))
    records = {str(BASES.unpack(name)[-1]): BaseRecord.FromString(value) for name, value in stored}
    own = _named(records.pop(key, BaseRecord()))
    indexes = (
        store.read(lambda tx, base_id=base_id: read_index(tx, table_id, base_id))  # type: ignore[misc]
        for record in records.values()
        for base_id in _named(record)
    )
    kept = [index for index in indexes if index is not None]
    for base_id in own:
        sweep_base(store, table_id, base_id, kept)


def has_old(tx: ReadTransaction, table_id: int) -> bool:
    """Whether there are replaced bases or unpublished builds."""
    builds = tx.get_range(*BASE_BUILDS.range(table_id), limit=1, snapshot=True)
    stored = tx.get_range(*BASES.range(table_id), snapshot=True)
    return bool(builds) or any(BaseRecord.FromString(value).old for _, value in stored)


def _named(record: BaseRecord) -> list[int]:
    return [record.base_id, *(base.base_id for base in record.old)]


def _forget(store: Store, table_id: int, key: str, base_id: int) -> None:
    """Removes a swept base from the record of its branch."""

    def body(tx: Transaction) -> None:
        stored = tx.get(BASES.key(table_id, key))
        if stored:
            record = BaseRecord.FromString(stored)
            left = [base for base in record.old if base.base_id != base_id]
            del record.old[:]
            record.old.extend(left)
            tx.set(BASES.key(table_id, key), record.SerializeToString())

    store.transact(body)


def pages_of(index: BaseIndex) -> set[tuple[int, int]]:
    """(base id, number) of the pages that belong to bases. Blocks of commits are left out."""
    return {(page.owner, page.number) for part in index.parts for page in part.pages if not page.block}


def require_index(index: BaseIndex | None, base_id: int) -> BaseIndex:
    """The index, unless it is missing. Raises CorruptStore."""
    if index is None:
        raise CorruptStore(f"base {base_id} has no index")
    return index
