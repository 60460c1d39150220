"""A snapshot as Thrift tables: a view that people name, over a hidden table whose partitions are file slices.

The view's text names one version, so that one query sees one version. The hidden table has one partition for each
file slice, located at the slice's directory, which never changes. A last partition key makes the partitions' names
unique, and makes sure that an INSERT into the hidden table never meets an existing directory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from lakemark_core.evolution.sql import missing_sql, quoted, scanned_sql
from lakemark_core.merge_sql import LogSize, merged_sql
from lakemark_core.table_kind import TableKind
from lakemark_core.types import STRING, Field, Schema, format_type
from lakemark_core.types.spark_json import columns_to_spark_json
from lakemark_hms.lake.scans import Scan
from lakemark_server.catalog.engine_names import own_properties
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.file_index.parts.fold import Snapshot
from lakemark_thrift import ttypes

SLICE_KEY: Final = "lakemark_slice"
VERSION_PARAMETER: Final = "lakemark.version"
SCHEMA_PARAMETER: Final = "lakemark.schema"
_PARQUET_INPUT: Final = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"
_PARQUET_OUTPUT: Final = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
_PARQUET_SERDE: Final = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_VIEW_INPUT: Final = "org.apache.hadoop.mapred.SequenceFileInputFormat"
_VIEW_OUTPUT: Final = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
_VIEW_SERDE: Final = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"


NamedScans: TypeAlias = Sequence[tuple[str, Scan]]
"""The names of hidden tables, and what they show."""


def view(table: LakeTable, name: str, location: str, version: int, schema: Schema, text: str) -> ttypes.Table:
    """The table ``name`` (``t``, ``t@v12`` …) as a view pinned to a version, with the query ``text``.

    ``location``: the table's, as engines read it.
    """
    record = table.record
    parameters = own_properties(record.properties)  # stores of earlier builds may have others
    parameters[VERSION_PARAMETER] = str(version)
    parameters[SCHEMA_PARAMETER] = str(schema.schema_id)
    parameters["lakemark.location"] = location
    parameters["spark.sql.sources.schema"] = columns_to_spark_json(schema.columns)
    if record.comment:
        parameters["comment"] = record.comment
    return ttypes.Table(
        tableName=name,
        dbName=record.database,
        owner=record.owner,
        createTime=record.created_ms // 1_000,
        lastAccessTime=0,
        retention=0,
        sd=ttypes.StorageDescriptor(
            cols=hive_columns(schema.columns),
            location=None,
            inputFormat=_VIEW_INPUT,
            outputFormat=_VIEW_OUTPUT,
            compressed=False,
            numBuckets=-1,
            serdeInfo=ttypes.SerDeInfo(name=None, serializationLib=_VIEW_SERDE, parameters={}),
            bucketCols=[],
            sortCols=[],
            parameters={},
        ),
        partitionKeys=[],
        parameters=parameters,
        viewOriginalText=text,
        viewExpandedText=text,
        tableType="VIRTUAL_VIEW",
        catName=record.catalog,
    )


def select_text(database: str, scans: NamedScans, schema: Schema) -> str:
    """The query for all rows of these hidden tables."""
    return " UNION ALL ".join(_select(database, hidden_table, scan, schema) for hidden_table, scan in scans)


def merged_text(
    database: str,
    settled: NamedScans,
    bases: NamedScans,
    deltas: NamedScans,
    schema: Schema,
    kind: TableKind,
    size: LogSize,
) -> str:
    """The query for the rows of ``settled``, and those that ``bases`` become by ``deltas``, which are of this size."""
    base = select_text(database, bases, schema) if bases else _no_rows(schema)
    merged = merged_sql(f"({base})", f"({select_text(database, deltas, schema)})", schema, kind, size)
    names = ", ".join(quoted(column.name) for column in schema.columns)
    text = f"SELECT {names} FROM ({merged})"  # noqa: S608 - names are quoted
    return f"{select_text(database, settled, schema)} UNION ALL {text}" if settled else text


def _no_rows(schema: Schema) -> str:
    columns = ", ".join(_aliased(missing_sql(column.type), column) for column in schema.columns)
    return f"SELECT {columns} WHERE false"


def _select(database: str, hidden_table: str, scan: Scan, schema: Schema) -> str:
    """The SELECT that makes the version's columns from those of one hidden table."""
    columns = [_aliased(scanned_sql(column, scanned), column) for column, scanned in scan.columns]
    columns += [quoted(column.name) for column in (*scan.more, *schema.partition_fields)]
    return f"SELECT {', '.join(columns)} FROM {quoted(database)}.{quoted(hidden_table)}"  # noqa: S608 - names are quoted


def _aliased(expression: str, column: Field) -> str:
    name = quoted(column.name)
    return name if expression == name else f"{expression} AS {name}"


def hidden(table: LakeTable, name: str, location: str, scan: Scan, snapshot: Snapshot) -> ttypes.Table:
    """The table ``name`` of a snapshot's file slices, all of which belong to this scan.

    ``location``: the table's, as engines read it.
    """
    schema = snapshot.schema
    columns = scan.data_columns
    keys = [*schema.partition_fields, Field(0, slice_key(schema, scan), STRING)]
    statistics = {
        "spark.sql.statistics.totalSize": str(snapshot.size_bytes),
        "spark.sql.statistics.numRows": str(snapshot.rows),
    }
    return parquet_table(table, name, parquet_storage(hive_columns(columns), location), columns, keys, statistics)


def parquet_table(
    table: LakeTable,
    name: str,
    storage: ttypes.StorageDescriptor,
    columns: Sequence[Field],
    keys: Sequence[Field],
    more: Mapping[str, str],
) -> ttypes.Table:
    """An external table of Hive's parquet format, as Spark describes those that it has made. ``more``: parameters."""
    record = table.record
    return ttypes.Table(
        tableName=name,
        dbName=record.database,
        owner=record.owner,
        createTime=record.created_ms // 1_000,
        lastAccessTime=0,
        retention=0,
        sd=storage,
        partitionKeys=hive_columns(keys),
        parameters={
            "EXTERNAL": "TRUE",
            "spark.sql.sources.schema": columns_to_spark_json([*columns, *keys]),
            "spark.sql.sources.schema.numPartCols": str(len(keys)),
            **{f"spark.sql.sources.schema.partCol.{at}": key.name for at, key in enumerate(keys)},
            "spark.sql.partitionProvider": "catalog",
            **more,
        },
        tableType="EXTERNAL_TABLE",
        catName=record.catalog,
    )


def plain(table: LakeTable, name: str, location: str, scan: Scan, snapshot: Snapshot) -> ttypes.Table:
    """The table ``name`` of a snapshot's file slices for engines that know no Spark; the arguments are as for
    ``hidden``."""
    record = table.record
    made = hidden(table, name, location, scan, snapshot)
    made.parameters = own_properties(record.properties) | {
        "EXTERNAL": "TRUE",
        VERSION_PARAMETER: str(snapshot.version),
        SCHEMA_PARAMETER: str(snapshot.schema.schema_id),
        "numFiles": str(snapshot.files),
        "numRows": str(snapshot.rows),
        "totalSize": str(snapshot.size_bytes),
    }
    if record.comment:
        made.parameters["comment"] = record.comment
    return made


def parquet_storage(columns: list[ttypes.FieldSchema] | None, location: str) -> ttypes.StorageDescriptor:
    return ttypes.StorageDescriptor(
        cols=columns,
        location=location,
        inputFormat=_PARQUET_INPUT,
        outputFormat=_PARQUET_OUTPUT,
        compressed=False,
        numBuckets=-1,
        serdeInfo=ttypes.SerDeInfo(
            name=None, serializationLib=_PARQUET_SERDE, parameters={"serialization.format": "1"}
        ),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def slice_key(schema: Schema, scan: Scan) -> str:
    """The name of the last partition key, which no column has."""
    name, scanned = SLICE_KEY, {column.name.lower() for column in scan.data_columns}
    while schema.find(name) is not None or name in scanned:
        name = "_" + name
    return name


def hive_columns(fields: Sequence[Field]) -> list[ttypes.FieldSchema]:
    """The columns for Hive, whose names are in lower case."""
    return [
        ttypes.FieldSchema(name=field.name.lower(), type=format_type(field.type), comment=field.comment or None)
        for field in fields
    ]
