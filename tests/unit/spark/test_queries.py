"""Columns that are texts, and columns that are expressions, beside one another."""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql.connect.functions import builtin as F  # noqa: N812 - its expressions need no JVM

from lakemark_spark.queries import selected


class Rows:
    """Tells what is selected."""

    def select(self, *columns: Any) -> Any:
        return columns

    def selectExpr(self, *texts: str) -> Any:  # noqa: N802 - Spark's own name
        return texts


def test_all_columns_stand_beside_expressions_and_texts() -> None:
    rows, expression = cast(DataFrame, Rows()), cast(Column, F.col("x"))
    every, other = cast(Any, selected(rows, ["*", expression]))
    assert every == "*"
    assert other is expression
    assert cast(Any, selected(rows, ["*", "a + 1 AS b"])) == ("*", "a + 1 AS b")
