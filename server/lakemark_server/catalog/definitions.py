"""Definitions of databases and tables as messages: what answers and events tell of them."""

from __future__ import annotations

from functools import lru_cache

from lakemark_core.messages.types import schema_to_proto
from lakemark_core.types import Schema
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_proto.v1 import catalog_pb2, types_pb2
from lakemark_server.catalog.lake import POLICIES, LakeTable
from lakemark_server.catalog.warehouse_records import HiveTable


def database(record: DatabaseRecord) -> catalog_pb2.Database:
    """What is told of a database."""
    return catalog_pb2.Database(
        catalog=record.catalog,
        name=record.name,
        description=record.description,
        location=record.location,
        properties=record.properties,
        owner=record.owner,
    )


def table_name(table: LakeTable) -> types_pb2.TableName:
    """The full name of a lake table."""
    record = table.record
    return types_pb2.TableName(catalog=record.catalog, database=record.database, table=record.name)


def lake_table(table: LakeTable, version: int = 0) -> catalog_pb2.Table:
    """What is told of a lake table. ``version``: the latest of main; 0: it is not told."""
    record = table.record
    return catalog_pb2.Table(
        name=table_name(table),
        table_id=record.table_id,
        kind=catalog_pb2.LAKE,
        location=record.location,
        properties=record.properties,
        owner=record.owner,
        created_ms=record.created_ms,
        schema=schema_message(table.schema),
        conflict_policy=POLICIES[table.policy],
        version=version,
        comment=record.comment,
        bucket_directory=record.bucket_directory,
    )


def warehouse_table(table: HiveTable) -> catalog_pb2.Table:
    """What is told of a warehouse table beside its Thrift struct."""
    return catalog_pb2.Table(
        name=types_pb2.TableName(catalog=table.database.catalog, database=table.database.name, table=table.name),
        table_id=table.table_id,
        kind=catalog_pb2.WAREHOUSE,
        hive_type=table.entry.hive_type,
        location=table.record.location,
        comment=table.record.comment,
    )


@lru_cache(maxsize=256)
def schema_message(schema: Schema) -> types_pb2.Schema:
    """The schema as a message, which is shared: callers must not change it."""
    return schema_to_proto(schema)
