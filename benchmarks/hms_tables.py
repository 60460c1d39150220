"""A store with very many tables for the ``hms`` benchmark, made by the service's own functions, and what clients list.

Creating them by the protocol would take most of the run. No service may have the store meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.hms_load import DATABASE, System
from lakemark_hms.objects import Identity, definition
from lakemark_hms.wire.codec import encode_struct
from lakemark_hms.wire.cut import Cut
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord, TableEntry
from lakemark_proto.store.v1.warehouse_pb2 import HiveTableRecord
from lakemark_proto.v1.catalog_pb2 import WAREHOUSE
from lakemark_server.admission import usage
from lakemark_server.catalog import tables, warehouse_records
from lakemark_server.catalog.service import Catalog
from lakemark_server.catalog.warehouse_records import HiveTable
from lakemark_server.kv import Transaction, open_store
from lakemark_server.store import store_format
from lakemark_thrift.ttypes import FieldSchema, SerDeInfo, StorageDescriptor, Table

AT_ONCE: Final = 500
"""Tables in a transaction."""

HUNDRED: Final = 100
"""So many tables have names with the same first letters."""


def name_of(number: int) -> str:
    """The name of a table; ``HUNDRED`` in a row begin alike."""
    return f"t{number // HUNDRED:06}_{number % HUNDRED:02}"


def fill(work_dir: Path, system: System, count: int) -> None:
    """Makes the store of the service in ``work_dir``, with so many external tables in one database."""
    work_dir.mkdir(parents=True)
    store = open_store(f"sqlite:///{work_dir}/lakemark.db")
    try:
        store_format.ensure(store)
        catalog = Catalog(store, str(work_dir / "warehouse"))
        catalog.ensure_default_database()
        owner = catalog.create_database(DatabaseRecord(name=DATABASE, location=system.location))
        table, first = _table(), name_of(0)
        identity = Identity(1_000_000, owner.catalog, owner.name, first, 1)
        made = definition(Cut(table, encode_struct(table)), identity, location=f"{system.location}/{first}", now=1)
        record = made.record(made.location).SerializeToString()

        def put(tx: Transaction, numbers: range) -> None:
            catalog.quotas.take(tx, owner.catalog, usage.TABLES, len(numbers))
            for number in numbers:
                name, table_id = name_of(number), 1_000_000 + number
                entry = TableEntry(table_id=table_id, kind=WAREHOUSE, hive_type=made.hive_type)
                tables.put(tx, owner.database_id, name, entry)
                # All names are equally long, so that only their letters differ.
                own = HiveTableRecord.FromString(record.replace(first.encode(), name.encode()))
                warehouse_records.put_table(tx, HiveTable(owner, name, entry, own))

        for begin in range(0, count, AT_ONCE):
            numbers = range(begin, min(begin + AT_ONCE, count))
            store.transact(lambda tx, numbers=numbers: put(tx, numbers))  # type: ignore[misc]
    finally:
        store.close()


def _table() -> Table:
    columns = [FieldSchema(name=f"column_{number:02}", type="bigint") for number in range(10)]
    storage = StorageDescriptor(cols=columns, serdeInfo=SerDeInfo(parameters={}), parameters={})
    return Table(owner="bench", sd=storage, parameters={"EXTERNAL": "TRUE"}, tableType="EXTERNAL_TABLE")


def lookup(name: str) -> Callable[[Any], object]:
    """The call of a client that asks for a table."""

    def call(client: Any) -> None:
        assert client.get_table(DATABASE, name).tableName == name

    return call


def listings(count: int) -> dict[str, Callable[[Any], object]]:
    """By figure, the call of a client that lists all tables, or a hundred by the beginning of their names."""

    def some(wanted: int, call: Callable[[Any], list[Any]]) -> Callable[[Any], object]:
        def checked(client: Any) -> None:
            assert len(call(client)) == wanted

        return checked

    pattern = name_of(count // 2)[:-2] + "*"
    return {
        "all_tables_s": some(count, lambda client: client.get_all_tables(DATABASE)),
        "table_meta_s": some(count, lambda client: client.get_table_meta(DATABASE, "*", [])),
        "tables_by_pattern_s": some(HUNDRED, lambda client: client.get_tables(DATABASE, pattern)),
        "table_meta_by_pattern_s": some(HUNDRED, lambda client: client.get_table_meta(DATABASE, pattern, [])),
    }
