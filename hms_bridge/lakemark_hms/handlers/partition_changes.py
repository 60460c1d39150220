"""Partitions: add, alter, rename, drop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lakemark_core.errors import InvalidPartition, PartitionNotFound, Unimplemented
from lakemark_hms.given import given_struct, table_of_partitions
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.hive_expressions import filter_text
from lakemark_hms.names import DatabaseName, database_name
from lakemark_hms.objects import VIEW, columns_of
from lakemark_hms.partition_objects import (
    added_partition,
    full_struct,
    renamed_partition,
    replaced_partition,
    values_of,
    values_of_name,
    view_of,
)
from lakemark_hms.partition_specs import partitions_of_spec
from lakemark_hms.request_heads import AddPartitionsHead, AlterHead, AlterPartitionsHead
from lakemark_hms.services import Services
from lakemark_hms.wire.codec import decode_struct, encode_struct
from lakemark_hms.wire.cut import Cut
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.heads import PartitionHead
from lakemark_hms.wire.splice import reply_struct, reply_struct_list, struct, struct_list_field
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.warehouse_records import HiveTable, Partition, Values
from lakemark_thrift.ttypes import (
    AlterPartitionsResponse,
    DropPartitionsRequest,
    PartitionSpec,
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
        if not sent:
            raise InvalidPartition("the request has no partition")
        table = self._table_of(sent[0].value)
        (added,) = self._add(table, sent, sent[0].value.dbName, sent[0].value.tableName)
        return reply_struct(call.name, call.seqid, full_struct(table, added))

    @method("add_partitions", Rank.WRITE)
    def add_list(self, call: Call) -> int:
        return self._add_to_first(call.cut(PartitionHead, 1))

    @method("add_partitions_pspec", Rank.WRITE)
    def add_specs(self, call: Call) -> int:
        """Case does not matter in the names here, in Hive neither."""
        specs = call.cut(PartitionSpec, 1)
        sent = [one for spec in specs for one in partitions_of_spec(spec)]
        if specs:
            first = specs[0].value
            names = table_of_partitions(first.dbName, first.tableName, first.catName)
            return len(self._add(self._services.hive_table(*names), sent, first.dbName, first.tableName, any_case=True))
        return 0

    def _add_to_first(self, sent: Sequence[Cut[PartitionHead]]) -> int:
        """Adds partitions to the table of the first one."""
        if not sent:
            return 0
        first = sent[0].value
        return len(self._add(self._table_of(first), sent, first.dbName, first.tableName))

    @method("add_partitions_req", Rank.WRITE)
    def add_req(self, call: Call) -> bytes:
        request = call.read(AddPartitionsHead).request
        named = self._services.find(*table_of_partitions(request.dbName, request.tblName, request.catName))
        sent = call.cut(PartitionHead, 1, 3)
        if named.door is not None:  # Spark says so before it ends the statement; the files themselves tell more
            added_as_sent = [one.raw for one in sent] if request.needResult is not False else []
            return reply_struct(call.name, call.seqid, struct(struct_list_field(1, added_as_sent)))
        table = self._services.require_hive(named)
        added = self._add(table, sent, request.dbName, request.tblName, if_not_exists=bool(request.ifNotExists))
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
        if table.entry.hive_type == VIEW:
            raise InvalidPartition(f"{table.label} is a view: its partitions are added with their definition")
        storage = decode_struct(Table, table.record.hive).sd or StorageDescriptor()
        storage.location = None
        new = encode_struct(ThriftPartition(values=list(values), sd=storage, lastAccessTime=0, parameters={}))
        head = Cut(PartitionHead(values=list(values)), new)
        (added,) = self._partitions.add(table, [added_partition(table, head, self._services.now())])
        return reply_struct(call.name, call.seqid, full_struct(table, added))

    def _add(
        self,
        table: HiveTable,
        sent: Sequence[Cut[PartitionHead]],
        database: str | None,
        name: str | None,
        *,
        if_not_exists: bool = False,
        any_case: bool = False,
    ) -> list[Partition]:
        """Adds partitions that must name the table as the request does (``database``, ``name``)."""
        for one in sent:
            _require_named(table, one.value, database, name, any_case=any_case)
        now = self._services.now()
        new = [added_partition(table, one, now) for one in sent]
        return self._partitions.add(table, new, if_not_exists=if_not_exists)

    def _table_of(self, head: PartitionHead) -> HiveTable:
        return self._services.hive_table(*table_of_partitions(head.dbName, head.tableName, head.catName))

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
        for one in sent:
            if one.value.dbName is not None and one.value.tableName is not None:
                _require_named(table, one.value, database.name, name, any_case=True)
        now = self._services.now()
        changes: dict[Values, Callable[[Partition], Partition]] = {}
        for one in sent:
            values = values_of(one.value.values)
            if values in changes:
                raise InvalidPartition(f"partition {table.partition_name(values)} is given twice in one request")
            changes[values] = partial(replaced_partition, table, one, now)
        self._partitions.alter(table, changes)

    @method("rename_partition", Rank.WRITE)
    def rename(self, call: Call) -> None:
        args = call.args
        sent = given_struct(call, PartitionHead, 4)
        self._rename(database_name(args.db_name), args.tbl_name, args.part_vals, sent)

    @method("rename_partition_req", Rank.WRITE)
    def rename_req(self, call: Call) -> RenamePartitionResponse:
        request = call.args.req
        sent = given_struct(call, PartitionHead, 1, 5)
        self._rename(database_name(request.dbName, request.catName), request.tableName, request.partVals, sent)
        return RenamePartitionResponse()

    def _rename(
        self, database: DatabaseName, name: str | None, part_vals: Sequence[str] | None, sent: Cut[PartitionHead]
    ) -> None:
        table = self._services.hive_table(database, name)
        _require_named(table, sent.value, database.name, name, any_case=True)
        if part_vals is not None and not part_vals:
            raise PartitionNotFound("the request does not say which partition to rename: it gives no values")
        now = self._services.now()
        self._partitions.rename(table, values_of(part_vals), partial(renamed_partition, table, sent, now))

    # -- exchange

    @method("exchange_partition", Rank.WRITE)
    def exchange(self, call: Call) -> bytes:
        """Answers an empty partition, as Hive's service does."""
        self._exchange(call)
        return reply_struct(call.name, call.seqid, encode_struct(ThriftPartition()))

    @method("exchange_partitions", Rank.WRITE)
    def exchange_list(self, call: Call) -> bytes:
        target, exchanged = self._exchange(call)
        return reply_struct_list(call.name, call.seqid, [full_struct(target, row) for row in exchanged])

    def _exchange(self, call: Call) -> tuple[HiveTable, list[Partition]]:
        args = call.args
        if args.partitionSpecs is None:
            raise InvalidPartition("the request says by no values which partitions to exchange")
        names = table_of_partitions(args.source_db, args.source_table_name)
        target = self._services.hive_table(*table_of_partitions(args.dest_db, args.dest_table_name))
        source = self._services.hive_table(*names)
        _require_alike(source, target)
        wanted = _leading_values(source, args.partitionSpecs)
        loaded = self._partitions.all(source)
        rows = [loaded.rows[at] for at in view_of(source, loaded).with_leading(wanted)]
        if not rows:
            raise PartitionNotFound(f"{source.label} has no partition with the values {dict(args.partitionSpecs)}")
        return target, self._partitions.exchange(source, target, rows)

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
        if_exists = request.ifExists is not False
        names = request.parts.names if request.parts is not None else None
        expressions = request.parts.exprs if request.parts is not None else None
        if expressions is not None:
            wanted = self._selected(table, [one.expr or b"" for one in expressions], if_exists=if_exists)
        elif names is not None:
            wanted = [values_of_name(table, name) for name in dict.fromkeys(names)]
        else:
            raise InvalidPartition("the request says neither by names nor by expressions which partitions to drop")
        dropped = self._drop(table, wanted, delete_data=bool(request.deleteData), if_exists=if_exists)
        return _reply_rows(call, table, dropped, wanted=request.needResult is not False)

    def _selected(self, table: HiveTable, expressions: Sequence[bytes], *, if_exists: bool) -> list[Values]:
        """The values of the partitions that one of the expressions selects, each exactly.

        Raises Unimplemented for an expression of Java, InvalidPredicate, PartitionNotFound unless ``if_exists``.
        """
        wanted: dict[Values, None] = {}
        named = self._services.find(DatabaseName(table.database.catalog, table.database.name), table.name)
        for expression in expressions:
            text = filter_text(expression)
            if not text:
                raise Unimplemented(
                    "expressions that Hive's clients serialize in Java are not read here: drop the partitions by name, "
                    "or by an expression that is the text of a filter (metastore.expression.proxy of the client: "
                    "MsckPartitionExpressionProxy)"
                )
            view, chosen = self._services.filtered(named, text, exact=True)
            if not chosen and not if_exists:
                raise PartitionNotFound(f"{table.label} has no partition for which {text} holds")
            wanted.update((view.values[at], None) for at in chosen)
        return list(wanted)

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


def _leading_values(table: HiveTable, spec: Mapping[str, str]) -> list[str]:
    """The wanted value of each partition column; "" for the last ones means any value.

    Names of columns are compared without case. Raises InvalidPartition if the spec gives no value, leaves out a column
    before one that it gives, names a column twice, or names something else.
    """
    given = {name.lower(): value for name, value in spec.items()}
    wanted = [given.pop(column.lower(), "") for column in table.columns]
    number = next((at for at, value in enumerate(wanted) if not value), len(wanted))
    is_ambiguous = len({name.lower() for name in spec}) < len(spec)
    if not number or any(wanted[number:]) or given or is_ambiguous:
        raise InvalidPartition(
            f"the request must give values for the first of [{', '.join(table.columns)}], one for each, and for "
            f"nothing else: it gives {spec}"
        )
    return wanted


def _require_alike(source: HiveTable, target: HiveTable) -> None:
    """Raises InvalidPartition unless both tables are of one catalog and have the same columns, in the same order."""
    if source.table_id == target.table_id:
        raise InvalidPartition(f"{source.label} cannot exchange partitions with itself")
    if source.database.catalog != target.database.catalog:
        raise InvalidPartition("partitions cannot be moved across catalogs")
    ours, theirs = (list(columns_of(table.record.hive).items()) for table in (source, target))
    if ours != theirs or list(source.columns) != list(target.columns):
        raise InvalidPartition(f"{source.label} and {target.label} have different columns or partition columns")


def _require_named(
    table: HiveTable, head: PartitionHead, database: str | None, name: str | None, *, any_case: bool = False
) -> None:
    """Raises InvalidPartition unless the partition names the table as the request does, which is in the same case."""
    if head.dbName is None or head.tableName is None:
        raise InvalidPartition("a partition must have the names of its database and table")
    sent = (head.dbName.rpartition("#")[2], head.tableName)  # Hive 3 and later may write @catalog#database
    asked = ((database or "").rpartition("#")[2], name or "")
    if sent != asked and not (any_case and tuple(map(str.lower, sent)) == tuple(map(str.lower, asked))):
        raise InvalidPartition(
            f"Partition does not belong to target table {table.label}: it names {head.dbName}.{head.tableName}"
        )
