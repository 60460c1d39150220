"""Objects for both sides, and the comparison of the two that the tests trust: field by field, by plain reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from lakemark import Client
from lakemark_hms.outside import Metastore
from lakemark_thrift.ttypes import (
    AddPartitionsRequest,
    Database,
    FieldSchema,
    Function,
    GetTableRequest,
    Partition,
    ResourceUri,
    SerDeInfo,
    StorageDescriptor,
    Table,
)

PARQUET = "org.apache.hadoop.hive.ql.io.parquet."


def columns(text: str) -> list[FieldSchema]:
    """The columns in ``"a int, b string"``."""
    return [FieldSchema(name=name, type=kind) for name, kind in (one.split(" ", 1) for one in text.split(", "))]


def storage(cols: str, location: str | None = None) -> StorageDescriptor:
    return StorageDescriptor(
        cols=columns(cols),
        location=location,
        inputFormat=PARQUET + "MapredParquetInputFormat",
        outputFormat=PARQUET + "MapredParquetOutputFormat",
        compressed=False,
        numBuckets=-1,
        serdeInfo=SerDeInfo(serializationLib=PARQUET + "serde.ParquetHiveSerDe", parameters={"a": "b"}),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def table(name: str, cols: str = "a int, b string", keys: str = "", db: str = "sales", **fields: Any) -> Table:
    return Table(
        tableName=name,
        dbName=db,
        owner="ann",
        createTime=0,
        lastAccessTime=0,
        retention=0,
        sd=storage(cols, fields.pop("location", None)),
        partitionKeys=columns(keys) if keys else [],
        parameters=fields.pop("parameters", {}),
        tableType=fields.pop("kind", "MANAGED_TABLE"),
        **fields,
    )


def view(name: str, text: str, db: str = "sales") -> Table:
    made = table(name, "a int", db=db, kind="VIRTUAL_VIEW", viewOriginalText=text, viewExpandedText=text)
    made.sd.location = None
    return made


def create(side: Metastore, made: Table) -> None:
    side.call("create_table", tbl=made)


def add_partitions(side: Metastore, name: str, rows: Sequence[Sequence[str]], db: str = "sales") -> None:
    parent = get(side, db, name)
    parts = [
        Partition(
            values=list(values), dbName=db, tableName=name, createTime=0, sd=storage(_text(parent)), parameters={}
        )
        for values in rows
    ]
    side.call(
        "add_partitions_req", request=AddPartitionsRequest(dbName=db, tblName=name, parts=parts, ifNotExists=True)
    )


def _text(parent: Table) -> str:
    return ", ".join(f"{one.name} {one.type}" for one in parent.sd.cols)


def get(side: Metastore, db: str, name: str) -> Any:
    answer = side.find("get_table_req", req=GetTableRequest(dbName=db, tblName=name))
    return None if answer is None else answer.table


def alter(side: Metastore, changed: Table, name: str | None = None) -> None:
    side.call("alter_table", dbname=changed.dbName, tbl_name=name or changed.tableName, new_tbl=changed)


def database(name: str, **fields: Any) -> Database:
    return Database(name=name, parameters=fields.pop("parameters", {}), **fields)


def function(name: str, kind: str = "com.example.F", db: str = "sales") -> Function:
    return Function(
        functionName=name,
        dbName=db,
        className=kind,
        ownerName="ann",
        ownerType=1,
        createTime=1,
        functionType=1,
        resourceUris=[ResourceUri(resourceType=1, uri="file:/f.jar")],
    )


def rows(first: int, count: int, months: int = 3) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [f"n{i}" for i in ids],
            "m": pa.array([i % months for i in ids], pa.int32()),
        }
    )


def append(client: Client, name: str, data: pa.Table, operation: Any = "append") -> int:
    with client.begin(name, operation) as writer:
        writer.write(data)
        return writer.commit().version


# -- comparing ---------------------------------------------------------------------------------------------------------

_NOT_COMPARED = ("transient_lastDdlTime", "numFiles", "totalSize", "numRows", "rawDataSize", "COLUMN_STATS_ACCURATE")


def described(side: Metastore, databases: Sequence[str]) -> dict[str, Any]:
    """All objects of the databases, without times, marks and statistics."""
    return dict(_described(side, databases))


def _described(side: Metastore, databases: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for name in databases:
        record = side.find("get_database", name=name)
        if record is None:
            continue
        yield name, (record.ownerName, _parameters(record.parameters))
        for function_name in side.call("get_functions", dbName=name, pattern="*"):
            one = side.call("get_function", dbName=name, funcName=function_name)
            yield f"{name}.{function_name}()", (one.className, one.ownerName, str(one.resourceUris))
        for table_name in side.call("get_all_tables", db_name=name):
            yield f"{name}.{table_name}", _table(get(side, name, table_name))
            if get(side, name, table_name).partitionKeys:
                for one in side.call("get_partitions", db_name=name, tbl_name=table_name, max_parts=-1):
                    yield f"{name}.{table_name}/{one.values}", (_storage(one.sd), _parameters(one.parameters))


def _table(one: Table) -> Any:
    keys = [(key.name, key.type) for key in one.partitionKeys or ()]
    return one.owner, _storage(one.sd), keys, _parameters(one.parameters), one.viewOriginalText or ""


def _storage(sd: StorageDescriptor) -> Any:
    cols = [(one.name, one.type, one.comment or "") for one in sd.cols or ()]
    return cols, sd.location or "", sd.inputFormat, sd.serdeInfo.serializationLib, sd.serdeInfo.parameters


def _parameters(parameters: dict[str, str] | None) -> dict[str, str]:
    return {
        name: value
        for name, value in (parameters or {}).items()
        if not name.startswith("lakemark_listener") and name not in (*_NOT_COMPARED, "EXTERNAL")
    }
