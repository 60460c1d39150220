"""Removes metadata of versions that have ended, once nothing reads it any more.

A reader begins at a base and goes on with the versions behind it. Versions before a base that is old enough are only
read one by one, for tags, savepoints, forks and restores, and these versions stay. A branch that may still be merged
needs all versions since it forked, on both sides. A dropped branch is removed as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

from lakemark_proto.store.v1.store_pb2 import BaseRecord, BranchRecord, InstantRecord, VersionRecord
from lakemark_proto.v1 import timeline_pb2 as pb
from lakemark_server.context.clock import ClockMs
from lakemark_server.file_index.pages.source import Cache, kept
from lakemark_server.kv import ReadTransaction, Store, Transaction, pairs_between
from lakemark_server.maintenance.cleaning.outline import outline, outlines
from lakemark_server.snapshots import bases
from lakemark_server.store.keyspace import (
    BASES,
    BLOCKS,
    BRANCH_KEYS,
    CLEANED,
    HEADS,
    INSTANTS,
    MAIN,
    MERGES,
    REMOVED,
    VERSION_TIMES,
    VERSIONS,
)
from lakemark_server.timeline import records
from lakemark_server.timeline.branches import forks, retention
from lakemark_server.timeline.conflicts.changes import replays_of
from lakemark_server.timeline.lineage import Lineage

# Readers and page tokens that began with an older base have ended by then.
BASE_AGE_MS_MIN: Final = 600_000
VERSIONS_A_READ: Final = 200
VERSIONS_A_TRANSACTION: Final = 50
KEYS_A_READ: Final = 500


@dataclass
class _Needs:
    """What must stay because something refers to it.

    ``main_upto``: of main, all versions behind this one. ``pinned``: single versions, by branch key. ``named``: keys of
    branches that others forked from or merged, or that have tags.
    """

    main_upto: int
    pinned: dict[str, set[int]] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)

    def pin(self, key: str, version: int) -> None:
        self.pinned.setdefault(key, set()).add(version)

    def need_behind(self, key: str, after: int) -> None:
        if key == MAIN:
            self.main_upto = min(self.main_upto, after)
        else:
            self.named.add(key)


class Trimmer:
    """Thread-safe. Raises what the store raises; the next call finishes what was cut off.

    ``cache`` keeps what does not change: outlines of versions, and which instants a base holds.
    """

    def __init__(self, store: Store, clock: ClockMs, cache: Cache) -> None:
        self._store, self._clock, self._cache = store, clock, cache

    def trim(self, table_id: int) -> int:
        """Removes metadata of one table. Returns of how many versions."""
        store = self._store
        upto = store.read(lambda tx: self._main_upto(tx, table_id))
        dropped = store.read(lambda tx: _dropped(tx, table_id))
        if not upto and not dropped:
            return 0
        needs = self._needs(table_id, upto)
        held = self._held(table_id)
        removed = self._trim_main(table_id, needs, held) if needs.main_upto > 0 else 0
        for branch in dropped:
            if branch.key not in needs.named:
                removed += self._remove(table_id, branch.key, held)
        return removed

    def _main_upto(self, tx: ReadTransaction, table_id: int) -> int:
        """The last version of main that no reader passes on its way; 0: there is none."""
        base = bases.read_record(tx, table_id, MAIN)
        if base is None:
            return 0
        before = self._clock() - BASE_AGE_MS_MIN
        # The base of a busy table is always young. Readers begin with it or with one that it has replaced, so the
        # latest base that is old enough is among those.
        known = [(base.version, base.created_ms), *((old.version, old.created_ms) for old in base.old)]
        old_enough = [version for version, created_ms in known if version and created_ms <= before]
        return min(retention.cleaned(tx, table_id, MAIN).deleted, max(old_enough) - 1) if old_enough else 0

    def _needs(self, table_id: int, upto: int) -> _Needs:
        """Reads tags, savepoints and branches first: one made later refers to a version that can be read anyway."""
        needs = _Needs(upto)
        keys = self._store.read(lambda tx: _references(tx, table_id, needs))
        of_main: list[VersionRecord] = []
        for lineage, head in self._store.read(lambda tx: _heads(tx, table_id, keys)):
            for record in self._pointing(table_id, lineage, head):
                if record.restored_version:
                    needs.pin(lineage.owner(record.restored_version), record.restored_version)
                if record.HasField("merged"):
                    if lineage.key == MAIN:
                        of_main.append(record)
                    else:
                        _merged(needs, record)
        for record in of_main:
            if record.version > needs.main_upto:
                _merged(needs, record)
        return needs

    def _pointing(self, table_id: int, lineage: Lineage, head: int) -> Iterator[VersionRecord]:
        """The restores and merges of a branch."""
        after = lineage.forks[0][1]
        if lineage.key == MAIN:
            after = self._store.read(lambda tx: retention.cleaned(tx, table_id, MAIN)).trimmed
            yield from outline(self._versions(table_id, MAIN, after)).pointing  # few versions are left there
        for run in outlines(self._store, self._cache, table_id, lineage.key, after, head):
            yield from run.pointing

    def _versions(self, table_id: int, key: str, upto: int | None = None) -> Iterator[VersionRecord]:
        begin, end = VERSIONS.range(table_id, key)
        if upto is not None:
            end = VERSIONS.key(table_id, key, upto + 1)
        for _, value in pairs_between(self._store, begin, end, VERSIONS_A_READ):
            yield VersionRecord.FromString(value)

    def _held(self, table_id: int) -> set[int]:
        """Instants whose blocks are parts of bases."""
        stored = self._store.read(lambda tx: tx.get_range(*BASES.range(table_id)))
        held: set[int] = set()
        for _, value in stored:
            record = BaseRecord.FromString(value)
            for base_id in (record.base_id, *(old.base_id for old in record.old)):
                name, read = ("held", table_id, base_id), partial(self._held_by, table_id, base_id)
                held |= kept(self._cache, name, read, lambda instants: 60 * len(instants))
        return held

    def _held_by(self, table_id: int, base_id: int) -> frozenset[int]:
        index = self._store.read(lambda tx: bases.read_index(tx, table_id, base_id))
        if index is None:
            return frozenset()
        return frozenset(page.owner for part in index.parts for page in part.pages if page.block)

    def _trim_main(self, table_id: int, needs: _Needs, held: set[int]) -> int:
        upto = needs.main_upto
        pinned = {version for version in needs.pinned.get(MAIN, ()) if 0 < version <= upto}

        def begin(tx: Transaction) -> None:
            record = retention.cleaned(tx, table_id, MAIN)
            record.trimmed = max(record.trimmed, upto)
            del record.pinned[:]
            record.pinned.extend(sorted(pinned))
            retention.put_cleaned(tx, table_id, MAIN, record)

        self._store.transact(begin)
        gone, stay = [], set(pinned)
        for record in self._versions(table_id, MAIN, upto):
            if record.version in pinned or record.instant in held:
                stay.add(record.version)
            else:
                record.inline_block = record.inline_removed = b""
                gone.append(record)
        self._clear(table_id, MAIN, gone)
        # A lookup by time finds the last version up to it, so the version after each that stays must stay, too.
        self._clear_times(table_id, upto, {1, *stay, *(version + 1 for version in stay)})
        self._clear_instants(table_id, upto)
        return len(gone)

    def _remove(self, table_id: int, key: str, held: set[int]) -> int:
        """Removes a dropped branch as a whole, unless bases of other branches hold blocks of its versions."""
        gone = list(self._versions(table_id, key))
        if any(record.instant in held for record in gone):
            return 0

        def begin(tx: Transaction) -> None:
            record = retention.cleaned(tx, table_id, key)
            record.trimmed = records.head(tx, table_id, key).version
            retention.put_cleaned(tx, table_id, key, record)

        def end(tx: Transaction) -> None:
            for space in (VERSION_TIMES, VERSIONS, MERGES):
                tx.clear_range(*space.range(table_id, key))
            for merge, _ in tx.get_range(*MERGES.range(table_id)):
                if MERGES.unpack(merge)[2] == key:
                    tx.clear(merge)
            for space in (HEADS, CLEANED, BASES, BRANCH_KEYS):
                tx.clear(space.key(table_id, key))

        self._store.transact(begin)
        self._clear(table_id, key, gone)
        bases.sweep_branch(self._store, table_id, key)
        self._store.transact(end)
        return len(gone)

    def _clear(self, table_id: int, key: str, gone: list[VersionRecord]) -> None:
        for first in range(0, len(gone), VERSIONS_A_TRANSACTION):

            def body(tx: Transaction, some: list[VersionRecord] = gone[first : first + VERSIONS_A_TRANSACTION]) -> None:
                for record in some:
                    tx.clear(VERSIONS.key(table_id, key, record.version))
                    tx.clear(INSTANTS.key(table_id, record.instant))
                    for space in (BLOCKS, REMOVED):
                        tx.clear_range(*space.range(table_id, record.instant))

            self._store.transact(body)

    def _clear_times(self, table_id: int, upto: int, kept: set[int]) -> None:
        def old(key: bytes) -> bool:
            return cast(int, VERSION_TIMES.unpack(key)[-1]) <= upto

        def gone(key: bytes, _: bytes) -> bool:
            return VERSION_TIMES.unpack(key)[-1] not in kept

        self._clear_where(*VERSION_TIMES.range(table_id, MAIN), old, gone)

    def _clear_instants(self, table_id: int, upto: int) -> None:
        """Removes rolled back instants, cleans and dropped savepoints from before the first version that is left."""
        following = self._store.read(lambda tx: tx.get(VERSIONS.key(table_id, MAIN, upto + 1)))
        if following is None:
            return
        first = VersionRecord.FromString(following).instant

        def gone(_: bytes, value: bytes) -> bool:
            record = InstantRecord.FromString(value)
            return record.state == pb.ROLLED_BACK or record.operation == pb.CLEAN_FILES

        begin, _ = INSTANTS.range(table_id)
        self._clear_where(begin, INSTANTS.key(table_id, first), lambda _: True, gone)

    def _clear_where(
        self, begin: bytes, end: bytes, old: Callable[[bytes], bool], gone: Callable[[bytes, bytes], bool]
    ) -> None:
        """Clears the keys that are ``gone``, up to the first that is not ``old``; each page in its own transaction."""
        while begin < end:

            def body(tx: Transaction, begin: bytes = begin) -> bytes:
                page = tx.get_range(begin, end, limit=KEYS_A_READ, snapshot=True)
                for key, value in page:
                    if not old(key):
                        return end
                    if gone(key, value):
                        tx.clear(key)
                return page[-1][0] + b"\x00" if len(page) == KEYS_A_READ else end

            begin = self._store.transact(body)


def _references(tx: ReadTransaction, table_id: int, needs: _Needs) -> list[str]:
    """Adds what tags, savepoints and branches need. Returns the keys of all branches."""
    for tag in (*forks.tags(tx, table_id), *retention.savepoints(tx, table_id)):
        needs.pin(tag.branch_key, tag.version)
        needs.named.add(tag.branch_key)
    keys = [MAIN]
    for branch in forks.all_branches(tx, table_id):
        keys.append(branch.key)
        needs.pin(branch.parent_key, branch.fork_version)
        if branch.parent_key != MAIN or not branch.dropped:
            needs.need_behind(branch.parent_key, branch.fork_version)
    return keys


def _heads(tx: ReadTransaction, table_id: int, keys: list[str]) -> list[tuple[Lineage, int]]:
    return [(forks.lineage(tx, table_id, key), records.head(tx, table_id, key).version) for key in keys]


def _merged(needs: _Needs, record: VersionRecord) -> None:
    needs.need_behind(record.merged.branch, record.merged.after_version)
    for run in replays_of(record):
        needs.need_behind(run.branch, run.after)


def _dropped(tx: ReadTransaction, table_id: int) -> list[BranchRecord]:
    """Dropped branches whose files are deleted."""
    return [
        branch
        for branch in forks.all_branches(tx, table_id)
        if branch.dropped
        and records.head(tx, table_id, branch.key).version
        <= max(branch.fork_version, retention.cleaned(tx, table_id, branch.key).deleted)
    ]
