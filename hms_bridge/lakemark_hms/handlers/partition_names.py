"""Names of partitions, and the values in a name."""

from __future__ import annotations

from collections.abc import Sequence

from lakemark_core.types import parse_partition_name
from lakemark_hms.handlers.partitions import leading
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import database_name
from lakemark_hms.partition_view import PartitionView, limited
from lakemark_hms.wire.cut import LIST
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import reply_value, string_list_value
from lakemark_server.admission.ranks import Rank
from lakemark_thrift.ttypes import (
    GetPartitionNamesPsResponse,
    PartitionValuesResponse,
    PartitionValuesRow,
)


class PartitionNames(Subject, title="Names of partitions"):
    @method("get_partition_names", Rank.READ)
    def all(self, call: Call) -> bytes:
        args = call.args
        names = _names(*leading(self._services, database_name(args.db_name), args.tbl_name, (), args.max_parts))
        return reply_value(call.name, call.seqid, LIST, (string_list_value(names),))

    @method("fetch_partition_names_req", Rank.WRITE)
    def fetch_req(self, call: Call) -> list[str]:
        request = call.args.partitionReq
        database = database_name(request.dbName, request.catName)
        return _names(*leading(self._services, database, request.tblName, (), request.maxParts))

    @method("get_partition_names_ps", Rank.READ)
    def leading(self, call: Call) -> list[str]:
        args = call.args
        database = database_name(args.db_name)
        return _names(*leading(self._services, database, args.tbl_name, args.part_vals or (), args.max_parts))

    @method("get_partition_names_ps_req", Rank.READ)
    def leading_req(self, call: Call) -> GetPartitionNamesPsResponse:
        request = call.args.req
        database = database_name(request.dbName, request.catName)
        chosen = leading(self._services, database, request.tblName, request.partValues or (), request.maxParts)
        return GetPartitionNamesPsResponse(names=_names(*chosen))

    @method("get_partition_values", Rank.READ)
    def values(self, call: Call) -> PartitionValuesResponse:
        """The distinct values of some partition columns, in order."""
        request = call.args.request
        named = self._services.find(database_name(request.dbName, request.catName), request.tblName)
        view, chosen = self._services.filtered(named, request.filter or "")
        wanted = [key.name.lower() for key in request.partitionKeys or () if key.name]
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


def _names(view: PartitionView, chosen: Sequence[int]) -> list[str]:
    names = view.names
    return [names[at] for at in chosen]
