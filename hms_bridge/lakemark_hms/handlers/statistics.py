"""Column statistics, which engines compute. They are kept and given back as they came, or aggregated."""

from __future__ import annotations

from collections.abc import Sequence

from lakemark_core.errors import InvalidArgument, NotFound
from lakemark_hms.aggregated_statistics import Aggregate
from lakemark_hms.given import given_struct
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import DatabaseName, database_name
from lakemark_hms.partition_objects import values_of_name
from lakemark_hms.services import NamedTable, Services
from lakemark_hms.wire.codec import decode_struct, encode_struct
from lakemark_hms.wire.cut import Cut
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import (
    reply_struct,
    struct,
    struct_field,
    struct_list_field,
    struct_list_map_field,
)
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.column_statistics import OF_TABLE
from lakemark_server.catalog.warehouse_records import HiveTable
from lakemark_thrift.ttypes import (
    AggrStats,
    ColumnStatistics,
    ColumnStatisticsDesc,
    ColumnStatisticsObj,
    SetPartitionsStatsResponse,
)

_STRUCTS_AT_ONCE = 1_000


class Statistics(Subject, title="Column statistics"):
    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._statistics = services.warehouse.statistics

    # -- update

    @method("update_table_column_statistics", Rank.WRITE)
    @method("update_partition_column_statistics", Rank.WRITE)
    def update(self, call: Call) -> bool:
        """Updates those of a table or of a partition, as the struct says."""
        description = given_struct(call, ColumnStatisticsDesc, 1, 1).value
        self._put(description, call.cut(ColumnStatisticsObj, 1, 2))
        return True

    @method("update_table_column_statistics_req", Rank.WRITE)
    @method("update_partition_column_statistics_req", Rank.WRITE)
    def update_req(self, call: Call) -> SetPartitionsStatsResponse:
        for one in call.cut(ColumnStatistics, 1, 1):
            if one.value.statsDesc is None:
                raise InvalidArgument("column statistics without a description")
            structs = [Cut(stats, encode_struct(stats)) for stats in one.value.statsObj or ()]
            self._put(one.value.statsDesc, structs)
        return SetPartitionsStatsResponse(result=True)

    @method("set_aggr_stats_for", Rank.WRITE)
    def set_aggregated(self, call: Call) -> bool:
        self.update_req(call)
        return True

    def _put(self, description: ColumnStatisticsDesc, structs: Sequence[Cut[ColumnStatisticsObj]]) -> None:
        table = self._services.hive_table(database_name(description.dbName, description.catName), description.tableName)
        place = OF_TABLE
        if not description.isTblLevel:
            place = _place(table, description.partName or "")
            self._services.warehouse.partitions.get(table, values_of_name(table, place))
        self._statistics.put(table, place, {one.value.colName or "": one.raw for one in structs})

    # -- get

    @method("get_table_column_statistics", Rank.READ)
    def of_table(self, call: Call) -> bytes:
        args = call.args
        named = self._services.find(database_name(args.db_name), args.tbl_name)
        return self._column(call, named, OF_TABLE, args.col_name or "")

    @method("get_partition_column_statistics", Rank.READ)
    def of_partition(self, call: Call) -> bytes:
        args = call.args
        named = self._services.find(database_name(args.db_name), args.tbl_name)
        return self._column(call, named, args.part_name or "", args.col_name or "")

    def _column(self, call: Call, named: NamedTable, place: str, column: str) -> bytes:
        stored: Sequence[bytes] = ()
        if named.hive is not None:
            place = _place(named.hive, place) if place else OF_TABLE
            stored = self._statistics.get(named.hive, [place], [column]).get(place, ())
        if not stored:
            raise NotFound(f"there are no statistics of column {column} of {named.database.name}.{named.name} {place}")
        description = ColumnStatisticsDesc(
            isTblLevel=not place, dbName=named.database.name, tableName=named.name, partName=place or None
        )
        answer = struct(struct_field(1, encode_struct(description)), struct_list_field(2, stored))
        return reply_struct(call.name, call.seqid, answer)

    @method("get_table_statistics_req", Rank.READ)
    def of_table_req(self, call: Call) -> bytes:
        request = call.args.request
        named = self._services.find(database_name(request.dbName, request.catName), request.tblName)
        stored: Sequence[bytes] = ()
        if named.hive is not None:
            stored = self._statistics.get(named.hive, [OF_TABLE], request.colNames or []).get(OF_TABLE, ())
        return reply_struct(call.name, call.seqid, struct(struct_list_field(1, stored)))

    @method("get_partitions_statistics_req", Rank.READ)
    def of_partitions_req(self, call: Call) -> bytes:
        request = call.args.request
        named = self._services.find(database_name(request.dbName, request.catName), request.tblName)
        stored: dict[str, list[bytes]] = {}
        if named.hive is not None:
            places = {_place(named.hive, name): name for name in request.partNames or ()}
            known = self._statistics.get(named.hive, list(places), request.colNames or [])
            stored = {places[place]: structs for place, structs in known.items()}
        return reply_struct(call.name, call.seqid, struct(struct_list_map_field(1, stored)))

    @method("get_aggr_stats_for", Rank.READ)
    def of_partitions_together(self, call: Call) -> AggrStats:
        """As in Hive, those partitions count as found that have statistics of all columns."""
        request = call.args.request
        named = self._services.find(database_name(request.dbName, request.catName), request.tblName)
        columns = list(dict.fromkeys(column.lower() for column in request.colNames or ()))
        if named.hive is None or not columns:
            return AggrStats(colStats=[], partsFound=0)
        places = list(dict.fromkeys(_place(named.hive, name) for name in request.partNames or ()))
        positions = {place: position for position, place in enumerate(places)}
        by_column = {column: Aggregate() for column in columns}
        complete = 0
        at_once = max(1, _STRUCTS_AT_ONCE // len(columns))
        for at in range(0, len(places), at_once):
            stored = self._statistics.get(named.hive, places[at : at + at_once], columns)
            for place, structs in stored.items():
                complete += len(structs) == len(columns)
                for one in (decode_struct(ColumnStatisticsObj, each) for each in structs):
                    by_column[(one.colName or "").lower()].add(one, positions[place])
        joined = (aggregate.result(len(places)) for aggregate in by_column.values())
        return AggrStats(colStats=[one for one in joined if one is not None], partsFound=complete)

    # -- delete

    @method("delete_table_column_statistics", Rank.WRITE)
    def delete_of_table(self, call: Call) -> bool:
        args = call.args
        return self._delete(database_name(args.db_name), args.tbl_name, [""], [args.col_name])

    @method("delete_partition_column_statistics", Rank.WRITE)
    def delete_of_partition(self, call: Call) -> bool:
        args = call.args
        return self._delete(database_name(args.db_name), args.tbl_name, [args.part_name or ""], [args.col_name])

    @method("delete_column_statistics_req", Rank.WRITE)
    def delete_req(self, call: Call) -> bool:
        request = call.args.req
        database = database_name(request.db_name, request.cat_name)
        places = [""] if request.tableLevel or not request.part_names else request.part_names
        return self._delete(database, request.tbl_name, places, request.col_names or [None])

    def _delete(self, database: DatabaseName, name: str, places: Sequence[str], columns: Sequence[str | None]) -> bool:
        table = self._services.hive_table(database, name)
        deleted = [
            self._statistics.delete(table, _place(table, place) if place else OF_TABLE, column)
            for place in places
            for column in columns
        ]
        if not any(deleted):
            raise NotFound(f"there are no such column statistics of {table.label}")
        return True


def _place(table: HiveTable, name: str) -> str:
    """The name of the partition in its normal form. Raises InvalidArgument."""
    return table.partition_name(values_of_name(table, name))
