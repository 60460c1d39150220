"""Facets: what Hive's read methods answer for lake tables and for names of their snapshots.

To Spark (``SparkFacet``) a table and each of its snapshots is a view over a hidden table of file slices. To engines
that do not run Spark's SQL (``EngineFacet``) it is such a table of file slices itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from lakemark_core.errors import (
    BranchNotFound,
    DatabaseNotFound,
    InvalidName,
    NotFound,
    TableNotFound,
    UnsupportedOperation,
)
from lakemark_core.merge_sql import DELTA_FIELDS, LogSize
from lakemark_core.storage import in_scheme
from lakemark_core.types import Field, Schema
from lakemark_hms.filters import PartitionFilter
from lakemark_hms.lake import names, tables
from lakemark_hms.lake.scans import Scan, is_plain, only_scan, plain_only, scans_of
from lakemark_hms.lake.slices import instant_of, slices_view, with_values
from lakemark_hms.objects import EXTERNAL, VIEW
from lakemark_hms.partition_view import PartitionView, Values
from lakemark_hms.wire.splice import encode_struct
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.cache import ByteLru
from lakemark_server.file_index.parts.changes import added_between, removed_between
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_server.file_index.planning.merge_on_read import base_files, merged_on_read, split
from lakemark_server.kv import lasts
from lakemark_server.snapshots.service import ResolvedVersion, SnapshotReference, Snapshots
from lakemark_server.store.keyspace import MAIN

_STRUCTS_BYTES: Final = 16 << 20
_VIEWS_BYTES: Final = 128 << 20
_REPLACED_INSTANTS_MAX: Final = 64  # whose replaced slices one request gets
_MORE: Final[Mapping[names.FileKinds, tuple[Field, ...]]] = {"files": (), "bases": (), "deltas": DELTA_FIELDS}
_Key = tuple[bytes, str, str, int]


@dataclass(frozen=True, slots=True)
class _Named:
    """A name, and what it stands for at the moment.

    ``wanted`` says what is shown. ``plain``: a table of file slices under the name of a table or snapshot, with the
    version's own columns.
    """

    resolved: ResolvedVersion
    name: str
    wanted: names.SnapshotName
    plain: bool = False

    @property
    def table(self) -> LakeTable:
        return self.resolved.table

    @property
    def version(self) -> int:
        return self.resolved.version

    @property
    def owner(self) -> str:
        """The key of the branch that holds the version: a branch or a tag made again has the same name and number."""
        return self.resolved.lineage.owner(self.version)

    @property
    def key(self) -> _Key:
        """Everything that the answer depends on."""
        return self.table.record.SerializeToString(deterministic=True), self.name, self.owner, self.version

    def hidden(self, group: int | None = None, kinds: names.FileKinds | None = None) -> str:
        branch = "" if self.owner == MAIN else self.owner
        wanted = self.wanted
        return names.hidden_name(
            self.table.record.name,
            self.version,
            wanted.since,
            group,
            branch,
            kinds or wanted.kinds,
            optimized=wanted.optimized,
        )


class _Facet:
    """What both facets have in common. Thread-safe.

    ``engine_schemes``: in which schemes locations are answered, by those that they have.
    """

    table_type: str
    alterable: bool
    _plain: bool  # whether names of tables and snapshots stand for tables of file slices

    def __init__(
        self,
        snapshots: Snapshots,
        engine_schemes: Mapping[str, str] | None = None,
        noted: Callable[[int], None] = lambda table_id: None,
    ) -> None:
        """``noted`` is told the id of each table whose file slices are asked for."""
        self._snapshots = snapshots
        self._noted = noted
        self._schemes = engine_schemes or {}
        # By all that they are made from: a table's record may change, a version's files do not.
        self._structs: ByteLru[_Key, bytes] = ByteLru(_STRUCTS_BYTES, len)
        self._views: ByteLru[_Key, PartitionView] = ByteLru(_VIEWS_BYTES, _view_bytes)

    def get_table(self, database: DatabaseRecord, name: str) -> bytes | None:
        """A serialized Thrift Table for ``t``, ``t@v12``, ``t@<time>``, ``t@v1..v2``, or for a hidden table:
        ``t@v12@files``, ``t@v12@files@s3``.

        None if there is no lake table ``t``. Raises InvalidName (no such snapshot).
        """
        named = self._resolve(database, name)
        if named is None:
            return None
        struct = self._structs.get(named.key)
        if struct is None:
            location = self._location(named)
            if named.wanted.files:
                scan, snapshot = self._snapshots.again(partial(self._scan, named))
                made = tables.plain if named.plain else tables.hidden
                struct = encode_struct(made(named.table, name, location, scan, snapshot))
            else:
                schema = self._snapshots.schema(named.table, named.resolved.lineage, named.version)
                text = self._text(named, schema)
                struct = encode_struct(tables.view(named.table, name, location, named.version, schema, text))
            self._structs.put(named.key, struct)
        if not named.wanted.files and named.wanted.at.timestamp_ms is None:
            lasts()
        return struct

    def partitions(self, database: DatabaseRecord, name: str, selection: PartitionFilter) -> PartitionView | None:
        """The selected file slices of a hidden table. Raises UnsupportedOperation for a name that has none."""
        named = self._resolve(database, name)
        if named is None:
            return None
        if not named.wanted.files:
            raise UnsupportedOperation(
                f"{database.name}.{name} is a view of a lake table and has no partitions of its own; its file slices "
                f"are those of {database.name}.{named.hidden()}",
                table=f"{database.name}.{name}",
            )
        self._noted(named.table.table_id)
        view = self._views.get(named.key) if selection.selects_all else None
        if view is None:
            view = self._snapshots.again(lambda: self._slices(named, selection))
            if selection.selects_all:
                self._views.put(named.key, view)
        return view

    def replaced(self, database: DatabaseRecord, name: str, wanted: Sequence[Values]) -> PartitionView | None:
        """Those of the wanted file slices that were replaced since a client listed them.

        A slice's name has the instant that wrote it, so it is known which version was the first to have the slice. If
        that was cleaned, the earliest that was not still has it, or else the slice is gone. Slices that a client has
        listed together are all in the version of the newest that is missing, so the newest versions come first, and
        one is mostly enough.
        """
        named = self._resolve(database, name)
        if named is None or not named.wanted.files or named.wanted.at != SnapshotReference():
            return None
        written = {values: instant for values in wanted if values and (instant := instant_of(values[-1])) is not None}
        recent = sorted(set(written.values()))[-_REPLACED_INSTANTS_MAX:]
        first = self._snapshots.first_versions(named.table, named.resolved.lineage, named.version, recent)
        missing = {
            # The slices of other instants are looked for in the same versions.
            values: first.get(instant, 0)
            for values, instant in written.items()
            if first.get(instant, named.version) < named.version or instant < recent[0]
        }
        versions = sorted({version for version in missing.values() if version}, reverse=True)
        return self._snapshots.again(partial(self._replaced, named, versions, missing)) if versions else None

    def _replaced(self, named: _Named, versions: Sequence[int], missing: Mapping[Values, int]) -> PartitionView | None:
        """The missing slices, each given with its first version, from the newest of these versions that has it.

        A slice that is not in its first version is gone, and no older version is loaded for it.
        """
        scan, newer = self._scan(named)
        view: PartitionView | None = None
        for version in versions:
            gone = self._removed(named, scan, newer, version, missing.keys())
            view = gone if view is None else view.followed_by(gone)
            missing = {one: first for one, first in missing.items() if first < version and not gone.at(one)}
            if not missing:
                break
        return view

    def _removed(
        self, named: _Named, scan: Scan, newer: Snapshot, version: int, wanted: AbstractSet[Values]
    ) -> PartitionView:
        """Those of the wanted file slices that an older version has and the latest does not, as the latest would show
        them. Those that it could not show are left out.
        """
        older = self._snapshot(replace(named, resolved=replace(named.resolved, version=version)))
        gone = plain_only(removed_between(with_values(older, wanted), newer))
        return slices_view(named.table, named.name, self._location(named), scan, gone, PartitionFilter(""), named.plain)

    def _slices(self, named: _Named, selection: PartitionFilter) -> PartitionView:
        scan, snapshot = self._scan(named)
        location = self._location(named)
        return slices_view(named.table, named.name, location, scan, snapshot, selection, named.plain)

    def _location(self, named: _Named) -> str:
        """The table's location in the scheme that engines read."""
        return in_scheme(named.table.record.location, self._schemes)

    def _resolve(self, database: DatabaseRecord, name: str) -> _Named | None:
        base = name.partition("@")[0]
        try:
            self._snapshots.version(database.catalog, database.name, base, SnapshotReference())
        except (DatabaseNotFound, TableNotFound, UnsupportedOperation):  # there is none, or it is a warehouse table
            return None
        wanted = names.parse(name)
        try:
            resolved = self._resolved(database, base, wanted)
            if wanted.since is not None:
                self._snapshots.require_readable(resolved.table, resolved.lineage, wanted.since)
        except NotFound as error:
            # "No such object" would make engines say only that there is no such table.
            raise InvalidName(error.message, **error.details) from error
        plain = self._plain and not wanted.files
        return _Named(resolved, name, replace(wanted, files=True, optimized=True) if plain else wanted, plain)

    def _resolved(self, database: DatabaseRecord, base: str, wanted: names.SnapshotName) -> ResolvedVersion:
        """The snapshot of a branch or a tag, which share one set of names. Raises NotFound."""
        reference, at = wanted.reference, wanted.at
        try:
            return self._snapshots.resolve(database.catalog, database.name, base, replace(at, branch=reference))
        except BranchNotFound as no_branch:
            try:
                resolved = self._snapshots.resolve(
                    database.catalog, database.name, base, SnapshotReference(tag=reference)
                )
            except NotFound as no_tag:
                raise InvalidName(f"{no_branch.message}; {no_tag.message}", name=reference) from no_branch
        if at != SnapshotReference():
            raise InvalidName(f"{reference!r} is a tag, which is one version: write {base}@{reference}", name=reference)
        return resolved

    def _text(self, named: _Named, schema: Schema) -> str:
        """The query of a version's view.

        Files are not looked at if there only ever was one schema, and there never were buckets, and so no deltas.
        """
        database = named.table.record.database
        if schema.schema_id == 1 and not named.table.kind.buckets:
            return tables.select_text(database, [(named.hidden(), only_scan(schema))], schema)
        loaded = self._loaded(named)
        merged = merged_on_read(loaded)
        if named.wanted.optimized or merged is None:
            files = base_files(loaded)
            return tables.select_text(database, _named_scans(named, files, "files"), schema)
        apart = split(loaded)
        settled = _named_scans(named, apart.settled, "files") if apart.settled.parts else []
        bases = _named_scans(named, apart.bases, "bases") if apart.bases.parts else []
        deltas = _named_scans(named, apart.deltas, "deltas")
        size = LogSize(apart.deltas.rows, merged.layers)
        return tables.merged_text(database, settled, bases, deltas, schema, named.table.kind, size)

    def _scan(self, named: _Named) -> tuple[Scan, Snapshot]:
        """What a hidden table shows. Raises InvalidName if there is no such group, or there are several."""
        snapshot = self._snapshot(named)
        if named.plain:
            if not is_plain(snapshot):
                raise _not_plain(named)
            return only_scan(snapshot.schema), snapshot
        if snapshot.schema.schema_id == 1:
            return _only_scan(snapshot.schema, named.wanted.kinds), snapshot
        scans = _scans_of(snapshot, named.wanted.kinds)
        wanted = [scan for scan in scans if named.wanted.group in (None, scan.latest)]
        if len(wanted) == 1:
            return wanted[0], wanted[0].of(snapshot)
        shown = " and ".join(f"{named.hidden(scan.latest)}" for scan in scans)
        raise InvalidName(
            f"the files of version {named.version} were written with schemas that are read differently: they are in "
            f"{shown}; query the view instead, which reads them all",
            name=named.name,
        )

    def _snapshot(self, named: _Named) -> Snapshot:
        """The files of a hidden table."""
        loaded = self._loaded(named)
        if named.wanted.optimized:
            return base_files(loaded)
        apart = split(loaded)
        by_kind: dict[names.FileKinds, Snapshot] = {
            "files": apart.settled,
            "bases": apart.bases,
            "deltas": apart.deltas,
        }
        return by_kind[named.wanted.kinds]

    def _loaded(self, named: _Named) -> Snapshot:
        """The files of a snapshot. Raises UnsupportedOperation if it has deltas that cannot be merged."""
        newer = self._snapshots.load(named.table, named.resolved.lineage, named.version)
        if named.wanted.since is not None:
            newer = added_between(self._snapshots.load(named.table, named.resolved.lineage, named.wanted.since), newer)
        if not named.wanted.optimized and merged_on_read(newer) is not None:
            if not named.table.kind.buckets:
                raise UnsupportedOperation(
                    f"version {newer.version} of {named.table.name} has delta files, and the table has no key to merge "
                    "them by: compact its file groups, or read it through the client's plans",
                    table=named.table.name,
                )
            if named.wanted.since is not None:
                raise UnsupportedOperation(
                    f"{named.name}: these versions of {named.table.name} have added deltas, which this name cannot "
                    "show: read the changes with lakemark_spark.changes, or add "
                    f"'@{names.OPTIMIZED_SUFFIX}' to read the base files that they have added",
                    table=named.table.name,
                )
        return newer


class SparkFacet(_Facet):
    """Thread-safe. A view costs little; only a hidden table needs the files of its version."""

    table_type = VIEW
    alterable = True
    _plain = False


class EngineFacet(_Facet):
    """Thread-safe. ``t``, ``t@v12`` … are plain parquet tables, each with one partition for each file slice.

    Base files are shown without the deltas on them. Raises UnsupportedOperation for versions with files that a reader
    of parquet cannot read by the names and types of the version's columns.
    """

    table_type = EXTERNAL
    alterable = False
    _plain = True


def _not_plain(named: _Named) -> UnsupportedOperation:
    table = f"{named.table.record.database}.{named.table.record.name}"
    return UnsupportedOperation(
        f"{named.name}: version {named.version} of {table} has files that were written with other names or types of "
        "columns, which no plain parquet table shows: rewrite them (compaction or clustering), or read the table "
        "through Spark",
        table=table,
    )


def _named_scans(named: _Named, files: Snapshot, kinds: names.FileKinds) -> list[tuple[str, Scan]]:
    """The hidden tables that show these files."""
    if files.schema.schema_id == 1:
        return [(named.hidden(kinds=kinds), _only_scan(files.schema, kinds))]
    scans = _scans_of(files, kinds)
    if len(scans) == 1:
        return [(named.hidden(kinds=kinds), scans[0])]
    return [(named.hidden(scan.latest, kinds), scan) for scan in scans]


def _only_scan(schema: Schema, kinds: names.FileKinds) -> Scan:
    scan = only_scan(schema)
    if kinds != "deltas":
        return scan
    # A delete has nulls in columns that are NOT NULL.
    columns = tuple((column, replace(column, nullable=True)) for column in schema.data_columns)
    return replace(scan, columns=columns, more=_MORE[kinds])


def _scans_of(files: Snapshot, kinds: names.FileKinds) -> list[Scan]:
    return [replace(scan, more=_MORE[kinds]) for scan in scans_of(files)]


def _view_bytes(view: PartitionView) -> int:
    return 1_000 + sum(map(len, view.structs)) + 200 * len(view)
