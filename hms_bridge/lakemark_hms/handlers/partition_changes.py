"""Partitions: add, alter, rename, drop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lakemark_core.errors import InvalidArgument, Unimplemented
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.names import DatabaseName, database_name
from lakemark_hms.partition_objects import (
    added_partition,
    full_struct,
    renamed_partition,
    replaced_partition,
    values_of,
    values_of_name,
)
from lakemark_hms.request_heads import AddPartitionsHead, AlterHead, AlterPartitionsHead
from lakemark_hms.services import Services
from lakemark_hms.wire.codec import decode_struct, encode_struct
from lakemark_hms.wire.cut import Cut
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.heads import PartitionHead
from lakemark_hms.wire.splice import reply_struct, struct, struct_list_field
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.warehouse_records import HiveTable, Partition, Values
from lakemark_thrift.ttypes import (
    AlterPartitionsResponse,
    DropPartitionsRequest,
    RenamePartitionResponse,
    StorageDescriptor,
    Table,
)
from lakemark_thrift.ttypes import Partition as ThriftPartition


class PartitionChanges(Subject, title="Changes of partitions"):
    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._partitions = services.warehouse.partitions

    # -- add

    @method("add_partition", Rank.WRITE)
    @method("add_partition_with_environment_context", Rank.WRITE)
    def add_one(self, call: Call) -> bytes:
        sent = call.cut(PartitionHead, 1)
        table = self._table_of(sent[0].value)
        (added,) = self._add(table, sent)
        return reply_struct(call.name, call.seqid, full_struct(table, added))

    @method("add_partitions", Rank.WRITE)
    def add_list(self, call: Call) -> int:
        sent = call.cut(PartitionHead, 1)
        return len(self._add(self._table_of(sent[0].value), sent)) if sent else 0

    @method("add_partitions_req", Rank.WRITE)
    def add_req(self, call: Call) -> bytes:
        request = call.read(AddPartitionsHead).request
        table = self._services.hive_table(database_name(request.dbName, request.catName), request.tblName)
        added = self._add(table, call.cut(PartitionHead, 1, 3), if_not_exists=bool(request.ifNotExists))
        return _reply_rows(call, table, added, wanted=request.needResult is not False)

    @method("append_partition", Rank.WRITE)
    @method("append_partition_with_environment_context", Rank.WRITE)
    def append(self, call: Call) -> bytes:
        args = call.args
        table = self._services.hive_table(database_name(args.db_name), args.tbl_name)
        return self._append(call, table, values_of(args.part_vals))

    @method("append_partition_by_name", Rank.WRITE)
    @method("append_partition_by_name_with_environment_context", Rank.WRITE)
    def append_by_name(self, call: Call) -> bytes:
        args = call.args
        table = self._services.hive_table(database_name(args.db_name), args.tbl_name)
        return self._append(call, table, values_of_name(table, args.part_name or ""))

    @method("append_partition_req", Rank.WRITE)
    def append_req(self, call: Call) -> bytes:
        request = call.args.appendPartitionsReq
        table = self._services.hive_table(database_name(request.dbName, request.catalogName), request.tableName)
        values = values_of_name(table, request.name) if request.name else values_of(request.partVals)
        return self._append(call, table, values)

    def _append(self, call: Call, table: HiveTable, values: Values) -> bytes:
        """Adds a partition with the storage of its table, in the default place."""
        storage = decode_struct(Table, table.record.hive).sd or StorageDescriptor()
        storage.location = None
        new = encode_struct(ThriftPartition(values=list(values), sd=storage, lastAccessTime=0, parameters={}))
        (added,) = self._add(table, [Cut(PartitionHead(values=list(values)), new)])
        return reply_struct(call.name, call.seqid, full_struct(table, added))

    def _add(
        self, table: HiveTable, sent: Sequence[Cut[PartitionHead]], *, if_not_exists: bool = False
    ) -> list[Partition]:
        _require_one_table(table, sent)
        now = self._services.now()
        new = [added_partition(table, one, now) for one in sent]
        return self._partitions.add(table, new, if_not_exists=if_not_exists)

    def _table_of(self, head: PartitionHead) -> HiveTable:
        return self._services.hive_table(database_name(head.dbName, head.catName), head.tableName)

    # -- alter and rename

    @method("alter_partition", Rank.WRITE)
    @method("alter_partition_with_environment_context", Rank.WRITE)
    @method("alter_partitions", Rank.WRITE)
    @method("alter_partitions_with_environment_context", Rank.WRITE)
    def alter(self, call: Call) -> None:
        """Alters one partition or a list."""
        args = call.read(AlterHead)
        self._alter(database_name(args.db_name), args.tbl_name, call.cut(PartitionHead, 3))

    @method("alter_partitions_req", Rank.WRITE)
    def alter_req(self, call: Call) -> AlterPartitionsResponse:
        request = call.read(AlterPartitionsHead).request
        database = database_name(request.dbName, request.catName)
        self._alter(database, request.tableName, call.cut(PartitionHead, 1, 4))
        return AlterPartitionsResponse()

    def _alter(self, database: DatabaseName, name: str | None, sent: Sequence[Cut[PartitionHead]]) -> None:
        table = self._services.hive_table(database, name)
        _require_one_table(table, sent)
        now = self._services.now()
        changes: dict[Values, Callable[[Partition], Partition]] = {}
        for one in sent:
            values = values_of(one.value.values)
            if values in changes:
                raise InvalidArgument(f"partition {table.partition_name(values)} is given twice in one request")
            changes[values] = partial(replaced_partition, table, one, now)
        self._partitions.alter(table, changes)

    @method("rename_partition", Rank.WRITE)
    def rename(self, call: Call) -> None:
        args = call.args
        (sent,) = call.cut(PartitionHead, 4)
        self._rename(database_name(args.db_name), args.tbl_name, args.part_vals, sent)

    @method("rename_partition_req", Rank.WRITE)
    def rename_req(self, call: Call) -> RenamePartitionResponse:
        request = call.args.req
        (sent,) = call.cut(PartitionHead, 1, 5)
        self._rename(database_name(request.dbName, request.catName), request.tableName, request.partVals, sent)
        return RenamePartitionResponse()

    def _rename(
        self, database: DatabaseName, name: str | None, part_vals: Sequence[str] | None, sent: Cut[PartitionHead]
    ) -> None:
        table = self._services.hive_table(database, name)
        now = self._services.now()
        self._partitions.rename(table, values_of(part_vals), partial(renamed_partition, table, sent, now))

    # -- drop

    @method("drop_partition", Rank.WRITE)
    @method("drop_partition_with_environment_context", Rank.WRITE)
    def drop(self, call: Call) -> bool:
        args = call.args
        table = self._services.hive_table(database_name(args.db_name), args.tbl_name)
        self._drop(table, [values_of(args.part_vals)], delete_data=bool(args.deleteData))
        return True

    @method("drop_partition_by_name", Rank.WRITE)
    @method("drop_partition_by_name_with_environment_context", Rank.WRITE)
    def drop_by_name(self, call: Call) -> bool:
        args = call.args
        table = self._services.hive_table(database_name(args.db_name), args.tbl_name)
        self._drop(table, [values_of_name(table, args.part_name or "")], delete_data=bool(args.deleteData))
        return True

    @method("drop_partition_req", Rank.WRITE)
    def drop_req(self, call: Call) -> bool:
        request = call.args.dropPartitionReq
        table = self._services.hive_table(database_name(request.dbName, request.catName), request.tblName)
        values = values_of_name(table, request.partName) if request.partName else values_of(request.partVals)
        self._drop(table, [values], delete_data=bool(request.deleteData))
        return True

    @method("drop_partitions_req", Rank.WRITE)
    def drop_list_req(self, call: Call) -> bytes:
        request: DropPartitionsRequest = call.args.req
        table = self._services.hive_table(database_name(request.dbName, request.catName), request.tblName)
        names = request.parts.names if request.parts is not None else None
        if names is None:
            raise Unimplemented("partitions are dropped by name here, not by a serialized Hive expression")
        wanted = [values_of_name(table, name) for name in dict.fromkeys(names)]
        dropped = self._drop(
            table, wanted, delete_data=bool(request.deleteData), if_exists=request.ifExists is not False
        )
        return _reply_rows(call, table, dropped, wanted=request.needResult is not False)

    def _drop(
        self, table: HiveTable, wanted: Sequence[Values], *, delete_data: bool, if_exists: bool = False
    ) -> list[Partition]:
        return self._partitions.drop(table, wanted, delete_data=delete_data, if_exists=if_exists)


def _reply_rows(call: Call, table: HiveTable, rows: Sequence[Partition], *, wanted: bool) -> bytes:
    """The partitions as field 1 of the result; without them an empty result, as in Hive."""
    if not wanted:
        return reply_struct(call.name, call.seqid, struct())
    structs = [full_struct(table, row) for row in rows]
    return reply_struct(call.name, call.seqid, struct(struct_list_field(1, structs)))


def _require_one_table(table: HiveTable, sent: Sequence[Cut[PartitionHead]]) -> None:
    """Raises InvalidArgument for partitions of other tables, as Hive does. Names that were not sent are the table's."""
    for one in sent:
        name = (one.value.tableName or table.name).lower()
        database = database_name(one.value.dbName or table.database.name).name
        if (database, name) != (table.database.name, table.name):
            raise InvalidArgument(
                f"Partition does not belong to target table {table.label}: it names {database}.{name}"
            )
