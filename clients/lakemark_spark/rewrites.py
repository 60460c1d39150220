"""Files that are written again with other rows, each in its file group: copy-on-write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakemark import DataFile, Plan, Writer
from lakemark.files import without_settled_deletes
from lakemark_core.errors import UnsupportedOperation
from lakemark_spark import layout
from lakemark_spark.footers import describe_files

FILE: Final = " file"
"""The column with the place of a row's file in a list. No column is named so: names do not begin with a space."""


def planned_bases(plan: Plan, table: str) -> list[DataFile]:
    """The planned files that have rows of the table.

    Raises UnsupportedOperation if there are deltas, which no base file can be written without.
    """
    files = without_settled_deletes(plan.files())
    deltas = sum(file.kind != "base" for file in files)
    if deltas:
        raise UnsupportedOperation(
            f"{table} has {deltas} delta files at version {plan.version} among those that may hold such rows, and rows "
            "are changed by writing base files again: compact their file groups first"
        )
    return files


def files_of(rows: DataFrame, files: Sequence[DataFile]) -> list[DataFile]:
    """The files that the rows come from, as their column ``FILE`` says."""
    found = {row[0] for row in rows.select(F.col(f"`{FILE}`")).distinct().collect()}
    return [file for at, file in enumerate(files) if at in found]


def write_again(rows: DataFrame, files: Sequence[DataFile], writer: Writer) -> list[DataFile]:
    """The files that replace ``files``; a file without remaining rows has no replacement."""
    attempt = layout.Attempt.new(writer.location)
    layout.write_numbered(layout.gathered(rows, FILE, writer.schema), FILE, writer.schema, attempt)
    spark = rows.sparkSession
    written = describe_files(spark, layout.written_files(attempt), writer.location, writer.schema)
    replaced = [files[layout.number_of(file.path)] for file in written]
    return [
        replace(new, file_group=old.file_group, bucket=old.bucket) for new, old in zip(written, replaced, strict=True)
    ]
