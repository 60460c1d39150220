"""The ``spark`` facet: what Hive's read methods answer for lake tables and for names of their snapshots."""

from __future__ import annotations

from typing import Final

from lakemark.errors import DatabaseNotFound, InvalidName, TableNotFound, UnsupportedOperation, VersionNotFound
from lakemark_hms.lake import names, tables
from lakemark_hms.lake.slices import slices_view
from lakemark_hms.partition_view import PartitionView
from lakemark_hms.wire.splice import encode_struct
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, TableEntry
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.snapshot.cache import ByteLru
from lakemark_server.snapshot.service import At, Snapshots

_STRUCTS_BYTES: Final = 16 << 20
_VIEWS_BYTES: Final = 128 << 20
_Key = tuple[bytes, str, int]


class SparkFacet:
    """Thread-safe. Views are cheap; the files of a version are only looked at for its hidden table."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        # By all that they are made from: a table's record may change, a version's files do not.
        self._structs: ByteLru[_Key, bytes] = ByteLru(_STRUCTS_BYTES, len)
        self._views: ByteLru[_Key, PartitionView] = ByteLru(_VIEWS_BYTES, _view_bytes)

    def get_table(self, database: DatabaseRecord, name: str, entry: TableEntry | None) -> bytes | None:
        """A serialized Thrift Table for ``t``, ``t@v12``, ``t@<time>`` or the hidden table ``t@v12@files``.

        None if there is no lake table ``t``. Raises InvalidName (no such snapshot), UnsupportedOperation.
        """
        del entry
        resolved = self._resolve(database, name)
        if resolved is None:
            return None
        table, version, files = resolved
        key = (table.record.SerializeToString(deterministic=True), name, version)
        found = self._structs.get(key)
        if found is None:
            if files:
                thrift = tables.hidden(table, self._snapshots.load(table, version))
            else:
                thrift = tables.view(table, name, version, self._snapshots.schema(table, version))
            found = encode_struct(thrift)
            self._structs.put(key, found)
        return found

    def partitions(
        self, database: DatabaseRecord, name: str, entry: TableEntry | None, filter_text: str
    ) -> PartitionView | None:
        """The file slices of a hidden table; any other name has none: UnsupportedOperation."""
        del entry
        resolved = self._resolve(database, name)
        if resolved is None:
            return None
        table, version, files = resolved
        if not files:
            raise UnsupportedOperation(
                f"{database.name}.{name} is a view of a lake table and has no partitions of its own; its file slices "
                f"are those of {database.name}.{names.hidden_name(table.record.name, version)}",
                table=f"{database.name}.{name}",
            )
        if filter_text.strip():
            return slices_view(table, self._snapshots.load(table, version), filter_text)
        key = (table.record.SerializeToString(deterministic=True), name, version)
        found = self._views.get(key)
        if found is None:
            found = slices_view(table, self._snapshots.load(table, version))
            self._views.put(key, found)
        return found

    def _resolve(self, database: DatabaseRecord, name: str) -> tuple[LakeTable, int, bool] | None:
        """The table, the version, and whether its hidden table is meant."""
        base = name.partition("@")[0]
        try:
            self._snapshots.version(database.catalog, database.name, base, At())
        except (DatabaseNotFound, TableNotFound, UnsupportedOperation):  # there is none, or it is a warehouse table
            return None
        wanted = names.parse(name)
        try:
            table, version = self._snapshots.version(database.catalog, database.name, base, wanted.at)
        except VersionNotFound as error:
            # "No such object" would make engines say only that there is no such table.
            raise InvalidName(error.message, **error.details) from error
        return table, version, wanted.files


def _view_bytes(view: PartitionView) -> int:
    return 1_000 + sum(map(len, view.structs)) + 200 * len(view)
