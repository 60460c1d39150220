"""The ``spark`` facet: what Hive's read methods answer for lake tables and for names of their snapshots."""

from __future__ import annotations

from typing import Final

from lakemark.errors import TableNotFound, UnsupportedOperation
from lakemark_hms.lake import names, tables
from lakemark_hms.lake.slices import Slices
from lakemark_hms.wire.splice import encode_struct
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.snapshot.cache import ByteLru
from lakemark_server.snapshot.service import Snapshots

_CACHE_BYTES: Final = 16 << 20


class SparkFacet:
    """Thread-safe. Views are cheap; the files of a version are only looked at for its hidden table."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        # By what the bytes depend on: a table's record may change, a version's files do not.
        self._encoded: ByteLru[tuple[bytes, str, int], bytes] = ByteLru(_CACHE_BYTES, len)

    def table(self, catalog: str, database: str, name: str) -> bytes:
        """A serialized Thrift Table for ``t``, ``t@v12``, ``t@<time>`` or the hidden table ``t@v12@files``.

        Raises TableNotFound, VersionNotFound, InvalidName, UnsupportedOperation.
        """
        wanted = names.parse(name)
        table, version = self._resolve(catalog, database, wanted)
        key = (table.record.SerializeToString(deterministic=True), name.lower(), version)
        found = self._encoded.get(key)
        if found is None:
            if wanted.files:
                thrift = tables.hidden(table, self._snapshots.load(table, version))
            else:
                thrift = tables.view(table, name.lower(), version, self._snapshots.schema(table, version))
            found = encode_struct(thrift)
            self._encoded.put(key, found)
        return found

    def slices(self, catalog: str, database: str, name: str) -> Slices:
        """The partitions of a hidden table; of any other name there are none: UnsupportedOperation."""
        wanted = names.parse(name)
        table, version = self._resolve(catalog, database, wanted)
        if not wanted.files:
            raise UnsupportedOperation(
                f"{database}.{name} is a view of a lake table and has no partitions of its own; its file slices are "
                f"those of {database}.{names.hidden_name(wanted.table, version)}",
                table=f"{database}.{name}",
            )
        return Slices(table, self._snapshots.load(table, version))

    def _resolve(self, catalog: str, database: str, wanted: names.SnapshotName) -> tuple[LakeTable, int]:
        try:
            return self._snapshots.version(catalog, database, wanted.table, wanted.at)
        except UnsupportedOperation as error:  # a warehouse table has no snapshots
            raise TableNotFound(error.message, **error.details) from error
