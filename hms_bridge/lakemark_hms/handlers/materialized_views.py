"""Materialized views: which ones queries may be rewritten to, and what they were made of.

They are warehouse tables of the type MATERIALIZED_VIEW. Their data are computed and kept up to date by Hive.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakemark_core.errors import DatabaseNotFound, InvalidArgument, TableNotFound
from lakemark_hms.given import given_database, given_name, given_struct
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import DatabaseName, database_name
from lakemark_hms.objects import MATERIALIZED, is_rewritten_to, with_creation_metadata
from lakemark_hms.wire.cut import I64, patch
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import i64_value, reply_struct_list
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.names import DEFAULT_CATALOG
from lakemark_server.catalog.warehouse_records import HiveTable
from lakemark_server.catalog.warehouse_tables import TableChange, with_struct
from lakemark_thrift.ttypes import CreationMetadata

_MATERIALIZED_MS = 6


class MaterializedViews(Subject, title="Materialized views"):
    @method("get_materialized_views_for_rewriting", Rank.READ)
    def names_for_rewriting(self, call: Call) -> list[str]:
        """None of a database that there is not, as in Hive."""
        try:
            return [view.name for view in self._for_rewriting(given_database(call.args.db_name))]
        except DatabaseNotFound:
            return []

    @method("get_all_materialized_view_objects_for_rewriting", Rank.READ)
    def all_for_rewriting(self, call: Call) -> bytes:
        structs: list[bytes] = []
        for database in self._services.catalog.list_databases(DEFAULT_CATALOG):
            try:
                views = list(self._for_rewriting(DatabaseName(DEFAULT_CATALOG, database.name)))
            except DatabaseNotFound:  # dropped since it was listed
                continue
            structs += [view.record.hive for view in views]
        return reply_struct_list(call.name, call.seqid, structs)

    def _for_rewriting(self, database: DatabaseName) -> Iterator[HiveTable]:
        for name, entry in self._services.catalog.list_tables(*database):
            if entry.hive_type != MATERIALIZED:
                continue
            try:
                view = self._services.warehouse.tables.get(*database, name)
            except TableNotFound:  # dropped since it was listed
                continue
            if is_rewritten_to(view.record.hive):
                yield view

    @method("update_creation_metadata", Rank.WRITE)
    def update_creation_metadata(self, call: Call) -> None:
        args = call.args
        sent = given_struct(call, CreationMetadata, 4)
        metadata = sent.raw
        if sent.value.materializationTime is None:
            metadata = patch(metadata, {_MATERIALIZED_MS: (I64, i64_value(self._services.catalog.clock()))})
        database = database_name(args.dbname, args.catName)

        def change(old: HiveTable) -> TableChange:
            if old.entry.hive_type != MATERIALIZED:
                raise InvalidArgument(f"{old.label} is not a materialized view: it has no creation metadata")
            return TableChange(old.database, with_struct(old, with_creation_metadata(old.record.hive, metadata)))

        self._services.warehouse.tables.alter(*database, given_name("table", args.tbl_name).lower(), change)
