"""Thrift objects as clients of Hive 2.3 send them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hmsclient.genthrift.hive_metastore.ttypes import (
    Database,
    FieldSchema,
    Partition,
    SerDeInfo,
    StorageDescriptor,
    Table,
)

PARQUET = "org.apache.hadoop.hive.ql.io.parquet."


def database(name: str, **fields: Any) -> Database:
    return Database(name=name, **fields)


def columns(text: str) -> list[FieldSchema]:
    """The columns in ``"a int, b string"``."""
    return [FieldSchema(*part.split(" ", 1), None) for part in text.split(", ")] if text else []


def storage(cols: str = "a int, b string", location: str | None = None) -> StorageDescriptor:
    return StorageDescriptor(
        cols=columns(cols),
        location=location,
        inputFormat=PARQUET + "MapredParquetInputFormat",
        outputFormat=PARQUET + "MapredParquetOutputFormat",
        compressed=False,
        numBuckets=-1,
        serdeInfo=SerDeInfo(serializationLib=PARQUET + "serde.ParquetHiveSerDe", parameters={}),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def table(
    name: str,
    *,
    db: str = "default",
    cols: str = "a int, b string",
    keys: str = "",
    location: str | None = None,
    parameters: Mapping[str, str] | None = None,
    kind: str = "MANAGED_TABLE",
) -> Table:
    return Table(
        tableName=name,
        dbName=db,
        owner="tester",
        createTime=0,
        sd=storage(cols, location),
        partitionKeys=columns(keys),
        parameters=dict(parameters or {}),
        tableType=kind,
    )


def placed(client: Any, new: Table) -> Table:
    """A definition for ``alter_table``, with the location that the table has: Hive wants clients to send it."""
    new.sd.location = client.get_table(new.dbName, new.tableName).sd.location
    return new


def partition(values: Sequence[str], *, of: str, db: str = "default", location: str | None = None) -> Partition:
    return Partition(values=list(values), dbName=db, tableName=of, sd=storage(location=location), parameters={})


def path(location: str) -> Path:
    assert location.startswith("file:/")
    return Path(location.removeprefix("file:"))
