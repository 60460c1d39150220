"""Partitions: look up by values, name, leading values or filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lakemark_core.errors import InvalidPartition, PartitionNotFound
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.hive_expressions import filter_text
from lakemark_hms.objects import is_true, location_of, parameters_of
from lakemark_hms.partition_objects import full_struct, privileges, values_of, values_of_name, view_of
from lakemark_hms.partition_specs import Projection, SpecPlace, grouped_specs, listed_spec, projection
from lakemark_hms.partition_view import PartitionView, Values, limited
from lakemark_hms.services import NamedTable, Services
from lakemark_hms.wire.codec import WireError
from lakemark_hms.wire.cut import LIST
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import (
    Pieces,
    bool_field,
    reply_struct,
    reply_struct_list,
    reply_value,
    struct,
    struct_field,
    struct_list_field,
)
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.warehouse_partitions import check_values
from lakemark_server.kv import lasts
from lakemark_thrift.ttypes import GetPartitionsFilterSpec, PartitionFilterMode

Chosen = tuple[PartitionView, Sequence[int]]
"""Partitions of a table, and where those that are asked for stand among them."""

_OWN_PRIVILEGES: Final = "PARTITION_LEVEL_PRIVILEGE"
_GROUPING: Final = "hive.hcatalog.partition.spec.grouping.enabled"


class Partitions(Subject, title="Partitions"):
    # -- one

    @method("get_partition", Rank.READ)
    def get(self, call: Call) -> bytes:
        args = call.args
        named = self._services.find_partitioned(args.db_name, args.tbl_name)
        return reply_struct(call.name, call.seqid, self._one(named, values_of(args.part_vals)))

    @method("get_partition_with_auth", Rank.READ)
    def get_with_auth(self, call: Call) -> bytes:
        args = call.args
        named = self._services.find_partitioned(args.db_name, args.tbl_name)
        one = self._one(named, values_of(args.part_vals))
        own = self._privileges(named, args.user_name, args.group_names)
        return reply_struct(call.name, call.seqid, one[:-1] + own + one[-1:])

    @method("get_partition_by_name", Rank.READ)
    def get_by_name(self, call: Call) -> bytes:
        args = call.args
        named = self._services.find_partitioned(args.db_name, args.tbl_name)
        values = values_of_name(named.hive or self._services.partitions(named), args.part_name or "", exact=True)
        return reply_struct(call.name, call.seqid, self._one(named, values))

    @method("get_partition_req", Rank.READ)
    def get_req(self, call: Call) -> bytes:
        request = call.args.req
        named = self._services.find_partitioned(request.dbName, request.tblName, request.catName)
        return reply_struct(
            call.name, call.seqid, struct(struct_field(1, self._one(named, values_of(request.partVals))))
        )

    def _one(self, named: NamedTable, values: Values) -> bytes:
        if named.hive is not None:
            check_values(named.hive, values)
            lasts()
            return full_struct(named.hive, self._services.warehouse.partitions.get(named.hive, values))
        view = self._services.named_slices(named, self._services.partitions(named), [values])
        if not len(view):
            raise PartitionNotFound(f"{named.database.name}.{named.name} has no partition ({', '.join(values)})")
        return view.struct(0)

    # -- several

    @method("get_partitions", Rank.READ)
    def all(self, call: Call) -> bytes:
        args = call.args
        named = self._services.find_partitioned(args.db_name, args.tbl_name)
        return self._reply(call, leading(self._services, named, (), args.max_parts))

    @method("get_partitions_with_auth", Rank.READ)
    def all_with_auth(self, call: Call) -> bytes:
        args = call.args
        named = self._services.find_partitioned(args.db_name, args.tbl_name)
        view, chosen = leading(self._services, named, (), args.max_parts)
        return self._reply(call, (view.extended(self._privileges(named, args.user_name, args.group_names)), chosen))

    @method("get_partitions_req", Rank.READ)
    def all_req(self, call: Call) -> bytes:
        request = call.args.req
        named = self._services.find_partitioned(request.dbName, request.tblName, request.catName)
        return self._reply_req(call, leading(self._services, named, (), request.maxParts))

    @method("get_partitions_ps", Rank.READ)
    def leading(self, call: Call) -> bytes:
        args = call.args
        named = self._services.find_partitioned(args.db_name, args.tbl_name)
        return self._reply(call, leading(self._services, named, wanted_values(args.part_vals), args.max_parts))

    @method("get_partitions_ps_with_auth", Rank.READ)
    def leading_with_auth(self, call: Call) -> bytes:
        args = call.args
        named = self._services.find_partitioned(args.db_name, args.tbl_name)
        view, chosen = leading(self._services, named, wanted_values(args.part_vals), args.max_parts)
        return self._reply(call, (view.extended(self._privileges(named, args.user_name, args.group_names)), chosen))

    @method("get_partitions_ps_with_auth_req", Rank.READ)
    def leading_req(self, call: Call) -> bytes:
        request = call.args.req
        named = self._services.find_partitioned(request.dbName, request.tblName, request.catName)
        if request.partNames:
            view, chosen = self._named(named, request.partNames)
        else:
            wanted = () if request.partVals is None else wanted_values(request.partVals)
            view, chosen = leading(self._services, named, wanted, request.maxParts)
        own = self._privileges(named, request.userName, request.groupNames)
        return self._reply_req(call, (view.extended(own), chosen))

    @method("get_partitions_by_names", Rank.READ)
    def by_names(self, call: Call) -> bytes:
        args = call.args
        named = self._services.find_partitioned(args.db_name, args.tbl_name)
        return self._reply(call, self._named(named, args.names))

    @method("get_partitions_by_names_req", Rank.READ)
    def by_names_req(self, call: Call) -> bytes:
        request = call.args.req
        named = self._services.find_partitioned(request.db_name, request.tbl_name)
        return self._reply_req(call, self._named(named, request.names))

    def _named(self, named: NamedTable, names: Sequence[str] | None) -> Chosen:
        """The partitions with these names; there is none of a name that does not fit the table."""
        if names is None:
            raise InvalidPartition("the request gives no list of names of partitions")
        if named.hive is not None:
            wanted = _values_of_names(named.hive, names)
            view = view_of(named.hive, self._services.warehouse.partitions.named(named.hive, wanted))
            return view, range(len(view))
        whole = self._services.partitions(named)
        view = self._services.named_slices(named, whole, _values_of_names(whole, names))
        return view, range(len(view))

    @method("get_partitions_by_filter", Rank.READ)
    def by_filter(self, call: Call) -> bytes:
        args = call.args
        view, chosen = self._filtered(args, args.tbl_name)
        return self._reply(call, (view, limited(chosen, args.max_parts)))

    @method("get_partitions_by_filter_req", Rank.READ)
    def by_filter_req(self, call: Call) -> bytes:
        request = call.args.req
        named = self._services.find_partitioned(request.dbName, request.tblName, request.catName)
        view, chosen = self._services.filtered(named, request.filter or "")
        # This method returns the list itself.
        return self._reply(call, (view, limited(chosen, request.maxParts)))

    @method("get_num_partitions_by_filter", Rank.READ)
    def number_by_filter(self, call: Call) -> int:
        """How many there are: of a filter that is not understood nobody can say."""
        return len(self._filtered(call.args, call.args.tbl_name, exact=True)[1])

    def _filtered(self, args: Any, table: str | None, *, exact: bool = False) -> Chosen:
        named = self._services.find_partitioned(args.db_name, table)
        return self._services.filtered(named, args.filter or "", exact=exact)

    # -- by an expression

    @method("get_partitions_by_expr", Rank.READ)
    def by_expression(self, call: Call) -> bytes:
        """Those that a filter selects. Of an expression of Java all, as unknown: Hive filters them again."""
        view, chosen, unknown = self._by_expression(call.args.req)
        return reply_struct(call.name, call.seqid, struct(_list_field(view, chosen), bool_field(2, unknown)))

    @method("get_partitions_spec_by_expr", Rank.READ)
    def specs_by_expression(self, call: Call) -> bytes:
        request = call.args.req
        view, chosen, unknown = self._by_expression(request)
        named = self._services.find_partitioned(request.dbName, request.tblName, request.catName)
        specs = self._specs(named, view, chosen, grouped=True)
        return reply_struct(call.name, call.seqid, struct(struct_list_field(1, specs), bool_field(2, unknown)))

    def _by_expression(self, request: Any) -> tuple[PartitionView, Sequence[int], bool]:
        """Partitions, where those that are selected stand, and whether there may be others among these."""
        named = self._services.find_partitioned(request.dbName, request.tblName, request.catName)
        text = filter_text(request.expr)
        if text is None:
            view, chosen = leading(self._services, named, (), -1)
        else:
            view, chosen = self._services.filtered(named, text, exact=True)
            chosen = limited(chosen, request.maxParts)
        self._services.check_number(len(chosen))
        return view, chosen, text is None

    # -- specs: partitions packed together

    @method("get_partitions_pspec", Rank.READ)
    def specs(self, call: Call) -> bytes:
        args = call.args
        if args.tbl_name is None:
            raise WireError("get_partitions_pspec needs the name of a table")
        named = self._services.find_partitioned(args.db_name, args.tbl_name)
        return self._reply_specs(call, named, leading(self._services, named, (), args.max_parts))

    @method("get_part_specs_by_filter", Rank.READ)
    def specs_by_filter(self, call: Call) -> bytes:
        args = call.args
        named = self._services.find_partitioned(args.db_name, args.tbl_name)
        view, chosen = self._services.filtered(named, args.filter or "")
        return self._reply_specs(call, named, (view, limited(chosen, args.max_parts)))

    @method("get_partitions_with_specs", Rank.READ)
    def with_specs(self, call: Call) -> bytes:
        """The partitions that names, values or filters select, with the fields that the client asks for."""
        request = call.args.request
        named = self._services.find_partitioned(request.dbName, request.tblName, request.catName)
        view, chosen = self._selected(named, request.filterSpec)
        self._services.check_number(len(chosen))
        wanted = projection(request.projectionSpec)
        own = self._privileges(named, request.user, request.groupNames) if request.withAuth else b""
        specs = self._specs(named, view.extended(own), chosen, grouped=True, wanted=wanted)
        return reply_struct(call.name, call.seqid, struct(struct_list_field(1, specs)))

    def _selected(self, named: NamedTable, spec: GetPartitionsFilterSpec | None) -> Chosen:
        filters = spec.filters if spec is not None else None
        mode = spec.filterMode if spec is not None else None
        if mode is None or filters is None:
            return leading(self._services, named, (), -1)
        if mode == PartitionFilterMode.BY_NAMES:
            return self._named(named, filters)
        if mode == PartitionFilterMode.BY_VALUES:
            return leading(self._services, named, wanted_values(filters), -1)
        # Several filters hold together.
        text = " and ".join(f"({one})" for one in filters if one.strip())
        return self._services.filtered(named, text)

    def _reply_specs(self, call: Call, named: NamedTable, found_ones: Chosen) -> bytes:
        view, chosen = found_ones
        self._services.check_number(len(chosen))
        grouped = named.hive is not None and is_true(parameters_of(named.hive.record.hive), _GROUPING)
        return reply_struct_list(call.name, call.seqid, self._specs(named, view, chosen, grouped=grouped))

    def _specs(
        self,
        named: NamedTable,
        view: PartitionView,
        chosen: Sequence[int],
        *,
        grouped: bool,
        wanted: Projection | None = None,
    ) -> list[bytes]:
        table = location_of(self._services.table_struct(named))
        place = SpecPlace(named.database.catalog, named.database.name, named.name, table)
        structs = [view.struct(at) for at in chosen]
        return grouped_specs(place, structs, wanted) if grouped else [listed_spec(place, structs)]

    def _privileges(self, named: NamedTable, user: str | None, groups: Sequence[str] | None) -> bytes:
        """The field with the privileges on each partition, if the table keeps any by partition; b"" if not."""
        if named.hive is None:
            return b""
        own = is_true(parameters_of(named.hive.record.hive), _OWN_PRIVILEGES)
        return privileges(user, groups) if own else b""

    # -- replies

    def _reply(self, call: Call, found_ones: Chosen) -> bytes:
        """For the methods whose result is the list itself."""
        view, chosen = found_ones
        self._services.check_number(len(chosen))
        return reply_value(call.name, call.seqid, LIST, _pieces(view, chosen))

    def _reply_req(self, call: Call, found_ones: Chosen) -> bytes:
        """For the methods whose result is a struct with the partitions as field 1."""
        view, chosen = found_ones
        self._services.check_number(len(chosen))
        return reply_struct(call.name, call.seqid, struct(_list_field(view, chosen)))


def wanted_values(values: Sequence[str] | None) -> Sequence[str]:
    """The leading values of a request. Raises InvalidPartition if there are none."""
    if not values:
        raise InvalidPartition("the request gives no values of partitions")
    return values


def leading(services: Services, named: NamedTable, wanted: Sequence[str], max_parts: int | None) -> Chosen:
    """The first partitions that have the leading values. "" stands for any value."""
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


def _values_of_names(table: Any, names: Sequence[str]) -> list[Values]:
    fitting = []
    for name in dict.fromkeys(names):
        try:
            fitting.append(values_of_name(table, name, exact=True))
        except (InvalidPartition, PartitionNotFound):
            continue
    return fitting


def _pieces(view: PartitionView, chosen: Sequence[int]) -> Pieces:
    """The list of the chosen partitions, by their places. If a range has all places, nothing is copied."""
    return view.list_value(None if len(chosen) == len(view) and isinstance(chosen, range) else chosen)


def _list_field(view: PartitionView, chosen: Sequence[int]) -> Pieces:
    return [bytes((LIST,)) + (1).to_bytes(2, "big"), *_pieces(view, chosen)]
