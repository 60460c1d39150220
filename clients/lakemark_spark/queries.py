"""DataFrames made by SQL texts. Each call of the JVM takes time, and a text takes few where columns take hundreds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakemark_core.evolution.sql import quoted

Value: TypeAlias = str | Column
"""What is in a column: Spark SQL, or an expression where SQL does not say all."""


def query(text: str, **frames: DataFrame) -> DataFrame:
    """The query ``text``, in which the names of ``frames`` stand behind a zero character: ``SELECT * FROM \\0rows``."""
    # Braces in the names of columns would be taken for places to fill in.
    text = text.replace("{", "{{").replace("}", "}}")
    for name in frames:
        text = text.replace(f"\x00{name}", "{" + name + "}")
    spark = next(iter(frames.values())).sparkSession
    return spark.sql(text, **cast(Any, frames))


def selected(rows: DataFrame, values: Sequence[Value]) -> DataFrame:
    """These columns of ``rows``."""
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) == len(values):
        return rows.selectExpr(*texts)
    # All columns are no expression; and what is compared with a Column is one, too.
    return rows.select(*("*" if isinstance(value, str) and value == "*" else as_column(value) for value in values))


def named(value: Value, name: str) -> Value:
    """The value under a name."""
    return f"{value} AS {quoted(name)}" if isinstance(value, str) else value.alias(name)


def as_column(value: Value) -> Column:
    """The value as an expression."""
    return F.expr(value) if isinstance(value, str) else value


def text_sql(text: str) -> str:
    """A literal. How Spark reads what is escaped in one is a setting, so its bytes are told."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"
