"""Loads snapshots: from the nearest base or the nearest version in memory, and the versions since."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from lakemark_core.errors import InvalidArgument
from lakemark_core.types import Schema
from lakemark_proto.store.v1.store_pb2 import BaseRecord, VersionRecord
from lakemark_proto.v1 import timeline_pb2
from lakemark_server.catalog import lake
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.base.read import Base
from lakemark_server.file_index.cache import SharingLru
from lakemark_server.file_index.pages.source import PageSource, SnapshotGone
from lakemark_server.file_index.parts.fold import Origin, Snapshot, empty, fold, gone_by_name
from lakemark_server.file_index.parts.locate import difference
from lakemark_server.file_index.parts.part import Part
from lakemark_server.kv import ReadTransaction, Store
from lakemark_server.snapshots import bases
from lakemark_server.snapshots.versions.history import VERSIONS_A_READ, History
from lakemark_server.timeline.lineage import Lineage

# Up to so many versions are folded onto one in memory before a base is looked up.
FEW_VERSIONS: Final = 16
WALK_A_READ: Final = 200
PAGE_TOO_OLD: Final = (
    "the page token is too old: the files were put in another order meanwhile; ask for the first page again"
)

Key = tuple[int, str, int]  # table id, key of the branch that holds the version, version
SnapshotCache = SharingLru[tuple[Key, Origin | None], Snapshot]


class Loading:
    """Loads snapshots for one request, and keeps what restores and merges refer to until the request is done."""

    def __init__(self, source: PageSource, table: LakeTable, cache: SnapshotCache) -> None:
        self._source, self._store, self._table, self._cache = source, source.store, table, cache
        self._seen: dict[tuple[Key, Origin | None], Snapshot] = {}
        self._schemas: dict[int, Schema] = {}

    def load(self, lineage: Lineage, version: int, origin: Origin | None = None) -> Snapshot:
        """The snapshot of a version.

        ``origin``: where folding must begin, so that files come in a certain order (None: anywhere). Raises
        InvalidArgument if that base is gone.
        """
        lineage = lineage.at(version)  # branches share the versions below their forks
        key = (self._table.table_id, lineage.key, version)
        snapshot = self._known(key, origin)
        if snapshot is None:
            try:
                snapshot = self.forward(lineage, self._start(lineage, version, origin), version)
            except SnapshotGone:  # the version in memory was cleaned, and the versions after it with it
                if origin is not None:
                    raise
                snapshot = self.forward(lineage, self._stored(lineage, version), version)
            self._keep(key, snapshot)
        return snapshot

    def walk(self, lineage: Lineage, after: int, upto: int) -> Iterator[Snapshot]:
        """Versions ``after`` to ``upto``, one after the other."""
        snapshot = self.load(lineage, after)
        yield snapshot
        history = self.history(snapshot.origin, lineage)
        while snapshot.version < upto:
            for record in history.records(lineage, snapshot.version, min(upto, snapshot.version + WALK_A_READ)):
                snapshot = fold(snapshot, history.changes(lineage, record), record, self.schema(record.schema_id))
                yield snapshot

    def leaving(self, lineage: Lineage, after: int, upto: int) -> Iterator[list[Part]]:
        """The files that each version from ``after`` on has and the next one lacks, up to ``upto``."""
        snapshot = self.load(lineage, after)
        history = self.history(snapshot.origin, lineage)
        for first in range(after, upto, WALK_A_READ):
            records = history.records(lineage, first, min(upto, first + WALK_A_READ))
            # Versions that name the files they remove are handled together; others have to be compared.
            for named, group in groupby(records, _names_what_goes):
                for group_records in [list(group)] if named else ([record] for record in group):
                    edits = [change for record in group_records for change in history.changes(lineage, record)]
                    following = fold(snapshot, edits, group_records[-1], self.schema(group_records[-1].schema_id))
                    yield (
                        gone_by_name(snapshot.parts, edits) if named else difference(snapshot.parts, following.parts)
                    )
                    snapshot = following
        self._keep((self._table.table_id, lineage.owner(upto), upto), snapshot)

    def history(self, origin: Origin, lineage: Lineage) -> History:
        """The edits of a lineage.

        Snapshots that restores refer to are folded from the same base, so that files come in the same order each time.
        """

        def load(of: Lineage, version: int) -> Snapshot:
            return self.load(of, version, self._beside(origin, of, version))

        return History(self._source, self._table, self.schema, load)

    def load_beside(self, lineage: Lineage, newer: Snapshot, version: int) -> Snapshot:
        """An older version, if possible in an order that the newer snapshot determines."""
        return self.load(lineage, version, self._beside(newer.origin, lineage, version))

    def _beside(self, origin: Origin, lineage: Lineage, version: int) -> Origin | None:
        """The origin in the same base, if the version is in its range; None if it is not."""
        base = self.base(origin.base_id)
        if base is None:
            return None if origin.base_id else origin
        if lineage.owner(version) != base.branch_key:
            return None
        return Origin(base.base_id, min(version, base.version))

    def schema(self, schema_id: int) -> Schema:
        """A schema of the table. Read once, however many versions have it."""
        schema = self._schemas.get(schema_id)
        if schema is None:
            schema = self._schemas[schema_id] = schema_of(self._store, self._table, schema_id)
        return schema

    def base(self, base_id: int) -> Base | None:
        """The base with this id; None for id 0, and if it was swept."""

        def read() -> Base | None:
            index = self._store.read(lambda tx: bases.read_index(tx, self._table.table_id, base_id))
            if index is None:
                return None
            return Base(base_id, index, self._table.table_id, self.schema, self._source)

        if not base_id:
            return None
        name = ("base", self._table.table_id, base_id)
        return self._source.kept(name, read, lambda base: 0 if base is None else base.memory_bytes)

    def standing(self, lineage: Lineage, version: int) -> tuple[BaseRecord, int] | None:
        """The base to begin at for a version, and the version to begin with."""
        segments = list(reversed(list(lineage.segments(0, version))))
        keys = [key for key, _, _ in segments]
        table_id = self._table.table_id
        stored = self._store.read(lambda tx: [bases.read_record(tx, table_id, key) for key in keys])
        for record, (_, low, high) in zip(stored, segments, strict=True):
            if record is not None and min(high, record.version) > low:
                return record, min(high, record.version)
        return None

    def sliced(self, base: Base, lineage: Lineage, version: int) -> Snapshot:
        """A version up to the base's own, from the base."""
        key = (self._table.table_id, lineage.owner(version), version)
        origin = Origin(base.base_id, version)
        snapshot = self._known(key, origin)
        if snapshot is None:
            (record,) = self.history(origin, lineage).records(lineage, version - 1, version)
            snapshot = Snapshot(version, self.schema(record.schema_id), tuple(base.at(version)), record, origin)
            self._keep(key, snapshot)
        return snapshot

    def _known(self, key: Key, origin: Origin | None) -> Snapshot | None:
        for name in ((key, origin), (key, None)):
            snapshot = self._seen.get(name) or self._cache.get(name)
            if snapshot is not None and origin in (None, snapshot.origin):
                return snapshot
        return None

    def _keep(self, key: Key, snapshot: Snapshot) -> None:
        for name in ((key, snapshot.origin), (key, None)):
            self._seen[name] = snapshot
            self._cache.put(name, snapshot)

    def _start(self, lineage: Lineage, version: int, origin: Origin | None) -> Snapshot:
        near = self._nearest(lineage, version, origin)
        if origin is not None:
            return near or self._pinned(lineage, origin)
        if near is not None and version - near.version <= FEW_VERSIONS:
            return near
        return self._stored(lineage, version, near)

    def _stored(self, lineage: Lineage, version: int, near: Snapshot | None = None) -> Snapshot:
        """The snapshot to begin with: from the standing base, unless ``near`` is closer."""
        standing = self.standing(lineage, version)
        if standing is None or (near is not None and near.version >= standing[1]):
            return near or empty(self.schema(1))
        base = self.base(standing[0].base_id)
        if base is None:
            raise SnapshotGone("the base of this snapshot was replaced by a newer one meanwhile; ask again")
        return self.sliced(base, lineage, standing[1])

    def _pinned(self, lineage: Lineage, origin: Origin) -> Snapshot:
        base = self.base(origin.base_id)
        if base is not None:
            return self.sliced(base, lineage, origin.version) if origin.version else empty(self.schema(1))
        if origin.base_id:
            raise InvalidArgument(PAGE_TOO_OLD)
        return empty(self.schema(1))

    def forward(self, lineage: Lineage, snapshot: Snapshot, version: int) -> Snapshot:
        """The later version ``version``, folded onto this snapshot."""
        history = self.history(snapshot.origin, lineage)
        while snapshot.version < version:
            upto = min(version, snapshot.version + VERSIONS_A_READ)
            versions = history.records(lineage, snapshot.version, upto)
            edits = [edit for record in versions for edit in history.changes(lineage, record)]
            snapshot = fold(snapshot, edits, versions[-1], self.schema(versions[-1].schema_id))
        return snapshot

    def _nearest(self, lineage: Lineage, version: int, origin: Origin | None) -> Snapshot | None:
        """The closest earlier version in memory."""
        for before in range(version - 1, max(0, version - 1 - FEW_VERSIONS), -1):
            name = (self._table.table_id, lineage.owner(before), before), origin
            snapshot = self._seen.get(name) or self._cache.get(name)
            if snapshot is not None:
                return snapshot
        known = {*self._seen, *self._cache.keys()}
        for key, low, high in reversed(list(lineage.segments(0, version - 1))):
            below = sorted(
                (
                    name
                    for name in known
                    if name[1] == origin and name[0][:2] == (self._table.table_id, key) and low < name[0][2] <= high
                ),
                key=lambda name: name[0][2],
            )
            for name in reversed(below):
                snapshot = self._seen.get(name) or self._cache.get(name)
                if snapshot is not None:
                    return snapshot
        return None


def _names_what_goes(record: VersionRecord) -> bool:
    overwrites = record.operation in (timeline_pb2.OVERWRITE_TABLE, timeline_pb2.OVERWRITE_PARTITIONS)
    return not (overwrites or record.restored_version or record.HasField("merged"))


def schema_of(store: Store, table: LakeTable, schema_id: int) -> Schema:
    """One of the table's schemas. Raises CorruptStore, TableNotFound (dropped meanwhile)."""
    if schema_id == table.schema.schema_id:
        return table.schema

    def body(tx: ReadTransaction) -> Schema:
        lake.get_record(tx, table.table_id)
        return lake.get_schema(tx, table.table_id, schema_id)

    return store.read(body)
