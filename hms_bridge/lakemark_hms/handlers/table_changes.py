"""Tables: create, alter, drop, truncate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from lakemark_core import storage
from lakemark_core.errors import InvalidArgument, Unimplemented, UnsupportedOperation
from lakemark_hms.constraints import CHECK, DEFAULT, FOREIGN_KEY, NOT_NULL, PRIMARY_KEY, UNIQUE, Kind, decision
from lakemark_hms.errors import Modified, NotGiven
from lakemark_hms.given import given_database, given_name, given_struct, short
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.lake_ddl import LakeDdl
from lakemark_hms.lake_intent import check_not_meant, is_lake
from lakemark_hms.names import DatabaseName, database_name
from lakemark_hms.objects import (
    MATERIALIZED,
    VIEW,
    Identity,
    creation_metadata_of,
    definition,
    partition_columns,
    sent_location,
    table_type,
    with_creation_metadata,
    with_parameters,
)
from lakemark_hms.partition_objects import values_of_name, with_columns
from lakemark_hms.services import Services
from lakemark_hms.table_checks import check_stored_as, check_table, columns_of
from lakemark_hms.wire.codec import decode_struct
from lakemark_hms.wire.cut import STRING, Cut, fields, patch
from lakemark_hms.wire.dispatch import Call
from lakemark_hms.wire.splice import reply_struct, string_value
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.constraints import Decision
from lakemark_server.catalog.warehouse_records import HiveTable, Partition
from lakemark_server.catalog.warehouse_tables import (
    TableChange,
    default_location,
    moves_with_its_name,
    with_struct,
)
from lakemark_thrift.ttypes import (
    AlterTableResponse,
    AsyncOperationResp,
    EnvironmentContext,
    Table,
    TableParamsUpdate,
    TruncateTableResponse,
)

_EXPECTED_KEY: Final = "expected_parameter_key"
_EXPECTED_VALUE: Final = "expected_parameter_value"
_FIELDS: Final = {PRIMARY_KEY: 2, UNIQUE: 4, FOREIGN_KEY: 3, NOT_NULL: 5, DEFAULT: 6, CHECK: 7}
_WITH_CONSTRAINTS: Final = {kind: (field,) for kind, field in _FIELDS.items()}
_CREATE_REQUEST: Final = {kind: (1, field + 1) for kind, field in _FIELDS.items()}
_COLUMNS = 1
_CATALOG = 17


class TableChanges(Subject, title="Changes of tables"):
    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._tables = services.warehouse.tables
        self._lake = LakeDdl(services)

    # -- create

    @method("create_table", Rank.WRITE)
    @method("create_table_with_environment_context", Rank.WRITE)
    def create(self, call: Call) -> None:
        sent = given_struct(call, Table, 1)
        self._create(sent)

    @method("create_table_with_constraints", Rank.WRITE)
    def create_with_constraints(self, call: Call) -> None:
        sent = given_struct(call, Table, 1)
        self._create(sent, _constraints(call, _WITH_CONSTRAINTS))

    @method("create_table_req", Rank.WRITE)
    def create_req(self, call: Call) -> None:
        sent = given_struct(call, Table, 1, 1)
        self._create(sent, _constraints(call, _CREATE_REQUEST))

    @method("translate_table_dryrun", Rank.READ)
    def as_it_would_be(self, call: Call) -> bytes:
        """The table of a ``CREATE TABLE AS SELECT`` of Hive 4: as it was sent, since nothing translates tables here."""
        sent = given_struct(call, Table, 1, 1)
        catalog = given_database(sent.value.dbName, sent.value.catName).catalog
        return reply_struct(call.name, call.seqid, patch(sent.raw, {_CATALOG: (STRING, string_value(catalog))}))

    def _create(self, sent: Cut[Table], constraints: Decision | None = None) -> None:
        table = sent.value
        check_table(table)
        owner = self._services.catalog.get_database(*given_database(table.dbName, table.catName))
        if is_lake(table):
            if constraints:
                raise UnsupportedOperation("lake tables have no constraints: create the table without them")
            self._lake.create(owner, table)
            return
        check_not_meant(table)
        check_stored_as(table)
        name = (table.tableName or "").lower()
        location = sent_location(table)
        if not location and table_type(table) != VIEW:
            location = self._services.for_engines(default_location(owner, name))
        now = self._services.now()
        table_id = self._services.catalog.table_ids.next()
        identity = Identity(table_id, owner.catalog, owner.name, name, table.createTime or now)
        self._tables.create(owner, definition(sent, identity, location=location, now=now), table_id, constraints)

    # -- alter

    @method("alter_table", Rank.WRITE)
    @method("alter_table_with_environment_context", Rank.WRITE)
    def alter(self, call: Call) -> None:
        sent = given_struct(call, Table, 3)
        args = call.args
        self._alter(given_database(args.dbname), args.tbl_name, sent, _properties(args))

    @method("alter_table_with_cascade", Rank.WRITE)
    def alter_with_cascade(self, call: Call) -> None:
        sent = given_struct(call, Table, 3)
        args = call.args
        self._alter(given_database(args.dbname), args.tbl_name, sent, {"CASCADE": "true"} if args.cascade else {})

    @method("alter_table_req", Rank.WRITE)
    def alter_req(self, call: Call) -> AlterTableResponse:
        sent = given_struct(call, Table, 1, 4)
        request = call.args.req
        properties = dict(_properties(request, "environmentContext"))
        if request.expectedParameterKey is not None:
            properties[_EXPECTED_KEY] = request.expectedParameterKey
            if request.expectedParameterValue is not None:
                properties[_EXPECTED_VALUE] = request.expectedParameterValue
        self._alter(database_name(request.dbName, request.catName), request.tableName, sent, properties)
        return AlterTableResponse()

    def _alter(self, database: DatabaseName, name: str | None, sent: Cut[Table], properties: Mapping[str, str]) -> None:
        new = sent.value
        check_table(new)
        named = self._services.find(database, given_name("table", name))
        target = given_database(new.dbName, new.catName or database.catalog)
        if target.catalog != database.catalog:
            raise UnsupportedOperation(
                f"a table cannot be moved to another catalog, from {database.catalog!r} to {short(target.catalog)}: "
                "create it there and copy its data"
            )
        if named.door is not None and self._services.doors is not None:
            self._services.doors.alter(named.door, new)
            return
        if named.hive is None:
            if _EXPECTED_KEY in properties:  # columns, properties and the name change one after the other
                raise UnsupportedOperation(
                    f"{named.database.name}.{named.name} is a lake table: its changes cannot depend on the value of a "
                    f"parameter; send them without {_EXPECTED_KEY}"
                )
            self._lake.alter(named, new)
            return
        new_owner = self._services.catalog.get_database(*target)
        new_name = (new.tableName or "").lower()
        now = self._services.now()

        def change(old: HiveTable) -> TableChange:
            before = decode_struct(Table, old.record.hive)
            _require_expected(before, properties)
            renamed = new_name != old.name or new_owner.name != old.database.name
            _check_alter(old, before, new, renamed)
            given = sent_location(new)
            stays = not given or storage.is_same_place(given, old.record.location)
            moves = renamed and stays and moves_with_its_name(old)
            location = (
                self._services.for_engines(default_location(new_owner, new_name))
                if moves
                else given or old.record.location
            )
            identity = Identity(old.table_id, new_owner.catalog, new_owner.name, new_name, before.createTime or now)
            with_metadata = sent
            if new.creationMetadata is None and table_type(new) == MATERIALIZED:  # clients of Hive 2 know of none
                kept = with_creation_metadata(sent.raw, creation_metadata_of(old.record.hive))
                with_metadata = Cut(new, kept)
            return TableChange(new_owner, definition(with_metadata, identity, location=location, now=now), moves)

        cascades = properties.get("CASCADE", "").lower() == "true"
        self._tables.alter(*database, named.name, change, _to_partitions if cascades else None)

    @method("update_table_params", Rank.WRITE)
    def update_params(self, call: Call) -> None:
        """Compares and swaps parameters, of one table at a time: several would need one transaction for all."""
        updates: list[TableParamsUpdate] = call.args.updates or []
        if len(updates) != 1:
            raise Unimplemented("update_table_params changes exactly one table at a time here")
        update = updates[0]
        expected = {_EXPECTED_KEY: update.expected_param_key} if update.expected_param_key is not None else {}
        if update.expected_param_value is not None:
            expected[_EXPECTED_VALUE] = update.expected_param_value
        database = database_name(update.db_name, update.cat_name)
        self._services.hive_table(database, update.table_name)

        def change(old: HiveTable) -> TableChange:
            before = decode_struct(Table, old.record.hive)
            _require_expected(before, expected)
            parameters = dict(before.parameters or {}) | dict(update.params or {})
            return TableChange(old.database, with_struct(old, with_parameters(old.record.hive, parameters)))

        self._tables.alter(*database, update.table_name or "", change)

    # -- drop and truncate

    @method("drop_table", Rank.WRITE)
    @method("drop_table_with_environment_context", Rank.WRITE)
    def drop(self, call: Call) -> None:
        args = call.args
        purge = _is_purge(_properties(args))
        self._drop(given_database(args.dbname), args.name, delete_data=bool(args.deleteData), purge=purge)

    @method("drop_table_req", Rank.WRITE)
    def drop_req(self, call: Call) -> AsyncOperationResp:
        request = call.args.dropTableReq
        database = database_name(request.dbName, request.catalogName)
        purge = _is_purge(_properties(request, "envContext"))
        self._drop(database, request.tableName, delete_data=bool(request.deleteData), purge=purge)
        return AsyncOperationResp(id="", finished=True)

    def _drop(self, database: DatabaseName, name: str | None, *, delete_data: bool, purge: bool) -> None:
        named = self._services.find(database, given_name("table", name))
        if named.hive is not None:
            self._tables.drop(*database, named.name, delete_data=delete_data)
        else:
            self._lake.drop(named, delete_data=delete_data, now=purge)

    @method("truncate_table", Rank.WRITE)
    def truncate(self, call: Call) -> None:
        args = call.args
        self._truncate(given_database(args.dbName), args.tableName, args.partNames)

    @method("truncate_table_req", Rank.WRITE)
    def truncate_req(self, call: Call) -> TruncateTableResponse:
        request = call.args.req
        self._truncate(database_name(request.dbName), request.tableName, request.partNames)
        return TruncateTableResponse()

    def _truncate(self, database: DatabaseName, name: str | None, part_names: Sequence[str] | None) -> None:
        """Null for the names means the whole table; an empty list means nothing, as in Hive."""
        table = self._services.hive_table(database, name)
        partitions = self._services.warehouse.partitions
        if part_names is None:
            self._tables.truncate(table, partitions.all(table).rows if table.columns else None)
            return
        wanted = [values_of_name(table, part) for part in part_names] if table.columns else []
        rows = partitions.named(table, wanted)
        if rows:  # as in Hive, names without a partition are left out
            self._tables.truncate(table, rows)


def _constraints(call: Call, paths: Mapping[Kind, Sequence[int]]) -> Decision | None:
    """What makes the constraints that come with a new table; None: there are none."""
    sent = [(kind, call.cut(kind.struct, *path)) for kind, path in paths.items()]
    return decision(sent) if any(structs for _, structs in sent) else None


def _properties(args: Any, name: str = "environment_context") -> Mapping[str, str]:
    context: EnvironmentContext | None = getattr(args, name, None)
    return (context.properties if context is not None else None) or {}


def _is_purge(properties: Mapping[str, str]) -> bool:
    """Whether the client asked for ``DROP … PURGE``."""
    return properties.get("ifPurge", "").lower() == "true"


def _require_expected(table: Table, properties: Mapping[str, str]) -> None:
    """Iceberg's compare-and-swap. Raises Modified. Its text begins as Hive's, for which clients look."""
    key = properties.get(_EXPECTED_KEY)
    if key is None:
        return
    expected = properties.get(_EXPECTED_VALUE)
    stored = (table.parameters or {}).get(key)
    if stored != expected:
        raise Modified(
            f"The table has been modified. The parameter value for key '{key}' is '{stored}'. "
            f"The expected was value was '{expected}'"
        )


def _check_alter(old: HiveTable, before: Table, new: Table, renamed: bool) -> None:
    label = old.label
    if is_lake(new):
        raise UnsupportedOperation(f"{label} is a warehouse table: it cannot be turned into a lake table")
    check_not_meant(new, before)
    check_stored_as(new, {column.type or "" for column in columns_of(before)})
    is_view = table_type(new) == VIEW
    if not is_view and not renamed and not sent_location(new):
        raise NotGiven(f"table {label} would have no location (sd.location is null): send the one that it has")
    if is_view and old.entry.hive_type == VIEW:
        return
    names = [name for name, _ in partition_columns(new)]
    if names != list(old.columns) or (
        renamed and [t for _, t in partition_columns(new)] != list(old.record.partition_types)
    ):
        raise InvalidArgument(f"partition keys can not be changed: {label} has [{', '.join(old.columns)}]")


def _to_partitions(old: HiveTable, new: HiveTable) -> Callable[[Partition], Partition] | None:
    """What gives every partition the columns of its table; None if they do not change."""
    columns = _columns_of(new.record.hive)
    return None if columns == _columns_of(old.record.hive) else lambda row: with_columns(new, row, columns)


def _columns_of(table: bytes) -> bytes:
    """The encoded list of the columns."""
    descriptor = fields(table)[7]
    columns = fields(table, descriptor.start)[_COLUMNS]
    return table[columns.start : columns.end]
