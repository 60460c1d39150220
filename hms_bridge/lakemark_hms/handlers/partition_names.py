"""Names of partitions, and the values in a name."""

from __future__ import annotations

from lakemark_core.errors import DatabaseNotFound, InvalidPartition, TableNotFound, Unimplemented
from lakemark_core.types import parse_partition_name
from lakemark_hms.given import table_of_partitions
from lakemark_hms.handlers.partitions import Chosen, leading, wanted_values
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.hive_expressions import selects_all
from lakemark_hms.partition_view import limited, names_of
from lakemark_hms.wire.cut import LIST
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import Strings, reply_value, string_list_of_pages, string_list_value
from lakemark_server.admission.ranks import Rank
from lakemark_thrift.ttypes import (
    GetPartitionNamesPsResponse,
    PartitionValuesResponse,
    PartitionValuesRow,
)


class PartitionNames(Subject, title="Names of partitions"):
    @method("get_partition_names", Rank.READ)
    def all(self, call: Call) -> bytes:
        """Of a table with very many partitions only the encoded names are in memory."""
        args = call.args
        if args.max_parts is None or args.max_parts < 0:
            pages = self._pages(args.db_name, args.tbl_name)
            if pages is not None:
                return reply_value(call.name, call.seqid, LIST, string_list_of_pages(pages))
        names = self._all(args.db_name, args.tbl_name, None, args.max_parts)
        return reply_value(call.name, call.seqid, LIST, (string_list_value(names),))

    def _pages(self, database: str | None, table: str | None) -> list[Strings] | None:
        """The names in pieces, if the partitions are too many to be kept in memory."""
        try:
            hive = self._services.find(*table_of_partitions(database, table)).hive
        except (DatabaseNotFound, TableNotFound):  # ``_all`` says what follows
            return None
        if hive is None:
            return None
        columns = hive.record.partition_columns
        pages = self._services.warehouse.partitions.all_or_pages(
            hive, lambda rows: Strings.of(names_of(columns, [row.values for row in rows]))
        )
        return pages if isinstance(pages, list) else None

    @method("fetch_partition_names_req", Rank.WRITE)
    def fetch_req(self, call: Call) -> list[str]:
        request = call.args.partitionReq
        return self._all(request.dbName, request.tblName, request.catName, request.maxParts)

    def _all(self, database: str | None, table: str | None, catalog: str | None, max_parts: int | None) -> list[str]:
        """As in Hive, a table that does not exist has none."""
        names = table_of_partitions(database, table, catalog)
        try:
            return _names(leading(self._services, self._services.find(*names), (), max_parts))
        except (DatabaseNotFound, TableNotFound):
            if not names[0].name or not names[1]:
                raise
            return []

    @method("get_partition_names_ps", Rank.READ)
    def leading(self, call: Call) -> list[str]:
        args = call.args
        named = self._services.find_partitioned(args.db_name, args.tbl_name)
        return _names(leading(self._services, named, wanted_values(args.part_vals), args.max_parts))

    @method("get_partition_names_ps_req", Rank.READ)
    def leading_req(self, call: Call) -> GetPartitionNamesPsResponse:
        request = call.args.req
        named = self._services.find_partitioned(request.dbName, request.tblName, request.catName)
        chosen = leading(self._services, named, wanted_values(request.partValues), request.maxParts)
        return GetPartitionNamesPsResponse(names=_names(chosen))

    @method("get_partition_names_req", Rank.READ)
    def by_expression(self, call: Call) -> list[str]:
        """Names of those that a serialized expression of Hive selects. Refused, but without one these are all."""
        request = call.args.req
        named = self._services.find_partitioned(request.dbName, request.tblName, request.catName)
        if not selects_all(request.expr):
            raise Unimplemented(
                "expressions that Hive's clients serialize in Java are not read here; ask for the names by a filter "
                "(get_partitions_by_filter) or for all"
            )
        view, chosen = leading(self._services, named, (), -1)
        ordered = list(reversed(chosen)) if (request.order or "").lower().endswith("desc") else chosen
        return _names((view, limited(ordered, request.maxParts)))

    @method("get_partition_values", Rank.READ)
    def values(self, call: Call) -> PartitionValuesResponse:
        """The distinct values of some partition columns, in order."""
        request = call.args.request
        wanted = [key.name.lower() for key in request.partitionKeys or () if key.name]
        if not wanted:
            raise InvalidPartition("the request names no partition columns")
        names = table_of_partitions(request.dbName, request.tblName, request.catName)
        try:
            named = self._services.find(*names)
        except (DatabaseNotFound, TableNotFound) as error:
            if not names[0].name or not names[1]:
                raise
            raise InvalidPartition(error.message, **error.details) from error  # as in Hive
        view, chosen = self._services.filtered(named, request.filter or "")
        places = [at for name in wanted for at, column in enumerate(view.columns) if column.lower() == name]
        rows = [tuple(view.values[at][place] for place in places) for at in chosen]
        if request.applyDistinct:
            rows = list(dict.fromkeys(rows))
        rows.sort(reverse=request.ascending is False)
        shown = limited(range(len(rows)), request.maxParts)
        return PartitionValuesResponse(partitionValues=[PartitionValuesRow(row=list(rows[at])) for at in shown])

    @staticmethod
    @method("partition_name_to_vals", Rank.READ)
    def to_values(call: Call) -> list[str]:
        return [value for _, value in parse_partition_name(call.args.part_name)] if call.args.part_name else []

    @staticmethod
    @method("partition_name_to_spec", Rank.READ)
    def to_spec(call: Call) -> dict[str, str]:
        return dict(parse_partition_name(call.args.part_name)) if call.args.part_name else {}

    @staticmethod
    @method("partition_name_has_valid_characters", Rank.READ)
    def are_legal(_call: Call) -> bool:
        """Every character is legal: those that paths cannot hold are escaped."""
        return True


def _names(found_ones: Chosen) -> list[str]:
    view, chosen = found_ones
    names = view.names
    return [names[at] for at in chosen]
