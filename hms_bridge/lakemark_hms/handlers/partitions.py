"""Partitions: look up by values, name, leading values or filter."""

from __future__ import annotations

from collections.abc import Sequence

from lakemark_core.errors import PartitionNotFound
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import DatabaseName, database_name
from lakemark_hms.partition_objects import full_struct, values_of, values_of_name, view_of
from lakemark_hms.partition_view import PartitionView, Values, limited
from lakemark_hms.services import NamedTable, Services
from lakemark_hms.wire.cut import LIST
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import Pieces, reply_struct, reply_value, struct, struct_field
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.warehouse_partitions import check_values


class Partitions(Subject, title="Partitions"):
    # -- one

    @method("get_partition", Rank.READ)
    @method("get_partition_with_auth", Rank.READ)
    def get(self, call: Call) -> bytes:
        args = call.args
        named = self._services.find(database_name(args.db_name), args.tbl_name)
        return reply_struct(call.name, call.seqid, self._one(named, values_of(args.part_vals)))

    @method("get_partition_by_name", Rank.READ)
    def get_by_name(self, call: Call) -> bytes:
        args = call.args
        named = self._services.find(database_name(args.db_name), args.tbl_name)
        values = values_of_name(named.hive or self._services.partitions(named), args.part_name or "")
        return reply_struct(call.name, call.seqid, self._one(named, values))

    @method("get_partition_req", Rank.READ)
    def get_req(self, call: Call) -> bytes:
        request = call.args.req
        named = self._services.find(database_name(request.dbName, request.catName), request.tblName)
        return reply_struct(
            call.name, call.seqid, struct(struct_field(1, self._one(named, values_of(request.partVals))))
        )

    def _one(self, named: NamedTable, values: Values) -> bytes:
        if named.hive is not None:
            check_values(named.hive, values)
            return full_struct(named.hive, self._services.warehouse.partitions.get(named.hive, values))
        view = self._services.partitions(named)
        at = view.at(values)
        if not at:
            raise PartitionNotFound(f"{named.database.name}.{named.name} has no partition ({', '.join(values)})")
        return view.struct(at[0])

    # -- several

    @method("get_partitions", Rank.READ)
    @method("get_partitions_with_auth", Rank.READ)
    def all(self, call: Call) -> bytes:
        args = call.args
        view, chosen = self._leading(database_name(args.db_name), args.tbl_name, (), args.max_parts)
        return _reply(call, view, chosen)

    @method("get_partitions_req", Rank.READ)
    def all_req(self, call: Call) -> bytes:
        request = call.args.req
        database = database_name(request.dbName, request.catName)
        return _reply_req(call, *self._leading(database, request.tblName, (), request.maxParts))

    @method("get_partitions_ps", Rank.READ)
    @method("get_partitions_ps_with_auth", Rank.READ)
    def leading(self, call: Call) -> bytes:
        args = call.args
        database = database_name(args.db_name)
        return _reply(call, *self._leading(database, args.tbl_name, args.part_vals or (), args.max_parts))

    @method("get_partitions_ps_with_auth_req", Rank.READ)
    def leading_req(self, call: Call) -> bytes:
        request = call.args.req
        database = database_name(request.dbName, request.catName)
        if request.partNames:
            return _reply_req(call, *self._named(database, request.tblName, request.partNames))
        return _reply_req(call, *self._leading(database, request.tblName, request.partVals or (), request.maxParts))

    def _leading(
        self, database: DatabaseName, table: str, wanted: Sequence[str], max_parts: int | None
    ) -> tuple[PartitionView, Sequence[int]]:
        return leading(self._services, database, table, wanted, max_parts)

    @method("get_partitions_by_names", Rank.READ)
    def by_names(self, call: Call) -> bytes:
        args = call.args
        return _reply(call, *self._named(database_name(args.db_name), args.tbl_name, args.names or []))

    @method("get_partitions_by_names_req", Rank.READ)
    def by_names_req(self, call: Call) -> bytes:
        request = call.args.req
        return _reply_req(call, *self._named(database_name(request.db_name), request.tbl_name, request.names or []))

    def _named(self, database: DatabaseName, table: str, names: Sequence[str]) -> tuple[PartitionView, Sequence[int]]:
        named = self._services.find(database, table)
        if named.hive is not None:
            wanted = [values_of_name(named.hive, name) for name in dict.fromkeys(names)]
            view = view_of(named.hive, self._services.warehouse.partitions.named(named.hive, wanted))
            return view, range(len(view))
        view = self._services.partitions(named)
        return view, [at for name in dict.fromkeys(names) for at in view.at(values_of_name(view, name))]

    @method("get_partitions_by_filter", Rank.READ)
    def by_filter(self, call: Call) -> bytes:
        args = call.args
        view, chosen = self._filtered(database_name(args.db_name), args.tbl_name, args.filter)
        return _reply(call, view, limited(chosen, args.max_parts))

    @method("get_partitions_by_filter_req", Rank.READ)
    def by_filter_req(self, call: Call) -> bytes:
        request = call.args.req
        database = database_name(request.dbName, request.catName)
        view, chosen = self._filtered(database, request.tblName, request.filter)
        # This method returns the list itself.
        return _reply(call, view, limited(chosen, request.maxParts))

    @method("get_num_partitions_by_filter", Rank.READ)
    def number_by_filter(self, call: Call) -> int:
        args = call.args
        return len(self._filtered(database_name(args.db_name), args.tbl_name, args.filter)[1])

    def _filtered(
        self, database: DatabaseName, table: str, filter_text: str | None
    ) -> tuple[PartitionView, Sequence[int]]:
        return self._services.filtered(self._services.find(database, table), filter_text or "")


def leading(
    services: Services, database: DatabaseName, table: str, wanted: Sequence[str], max_parts: int | None
) -> tuple[PartitionView, Sequence[int]]:
    """The first partitions that have the leading values. "" stands for any value."""
    named = services.find(database, table)
    if named.hive is not None:
        fixed = tuple(wanted[: next((at for at, value in enumerate(wanted) if not value), len(wanted))])
        # With gaps between the values, a limit cannot be applied while reading.
        gaps = any(wanted[len(fixed) :])
        limit = -1 if gaps or max_parts is None else max_parts
        if max_parts != 0 and len(wanted) <= len(named.hive.columns):
            rows = services.warehouse.partitions.first(named.hive, fixed, limit)
            if rows is not None:
                view = view_of(named.hive, rows)
                return view, limited(view.with_leading(wanted), max_parts)
    view = services.partitions(named)
    return view, limited(view.with_leading(wanted), max_parts)


def _pieces(view: PartitionView, chosen: Sequence[int]) -> Pieces:
    return view.list_value(None if len(chosen) == len(view) and isinstance(chosen, range) else chosen)


def _reply(call: Call, view: PartitionView, chosen: Sequence[int]) -> bytes:
    return reply_value(call.name, call.seqid, LIST, _pieces(view, chosen))


def _reply_req(call: Call, view: PartitionView, chosen: Sequence[int]) -> bytes:
    """For the methods whose result is a struct with the partitions as field 1."""
    head = bytes((LIST,)) + (1).to_bytes(2, "big")
    return reply_struct(call.name, call.seqid, struct([head, *_pieces(view, chosen)]))
