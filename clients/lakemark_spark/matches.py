"""New rows and the rows of a table with the same keys: what becomes of these, and which of those have no place yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakemark_core.types import Field, Schema
from lakemark_spark.batches import computed_once
from lakemark_spark.queries import named, selected
from lakemark_spark.rewrites import FILE
from lakemark_spark.schema import values_for


@dataclass(frozen=True)
class NewRows:
    """Rows for a table of this schema, not all of its columns perhaps, under names that no column of old rows has.

    Old rows are those of ``numbered_rows`` with their column ``FILE``.
    """

    rows: DataFrame
    schema: Schema
    keys: Sequence[Field]

    @property
    def may_move(self) -> bool:
        """Whether a row can have the key of one in another partition."""
        return not {field.name for field in self.keys}.issuperset(self.schema.partition_columns)

    def key_values(self) -> DataFrame:
        """The key columns under their own names."""
        return self.rows.select(*(_new(field).alias(field.name) for field in self.keys))

    def found_in(self, old: DataFrame) -> DataFrame:
        """The old rows that have one of the keys."""
        return old.join(self.rows, self._same_key(), "left_semi")

    def put_into(self, old: DataFrame) -> DataFrame:
        """The old rows as they are then, with ``FILE``: those that move to another partition are left out."""
        matched = _new(self.keys[0]).isNotNull()
        values = {field: F.when(matched, _new(field)).otherwise(_old(field)) for field in self._given}
        rows = old.join(self.rows, self._same_key(), "left").where(~matched | self._same_partition())
        return rows.select(*self._columns(values), F.col(f"`{FILE}`"))

    def outside(self, old: DataFrame) -> DataFrame:
        """The table's columns of those that take no old row's place: new ones, and those that move."""
        stays = F.col(f"`{FILE}`").isNotNull() & self._same_partition()
        rows = self.rows.join(old, self._same_key(), "left").where(~stays)
        return rows.select(*self._columns({field: _new(field) for field in self._given}))

    @property
    def _given(self) -> list[Field]:
        names = set(self.rows.columns)
        return [field for field in self.schema.columns if _name(field) in names]

    def _columns(self, values: Mapping[Field, Column]) -> list[Column]:
        """A column that is not given keeps the old row's value, if there is one."""
        return [values.get(field, _old(field)).alias(field.name) for field in self.schema.columns]

    def _same_key(self) -> Column:
        return reduce(and_, (_old(field) == _new(field) for field in self.keys))

    def _same_partition(self) -> Column:
        return reduce(
            and_, (_old(field).eqNullSafe(_new(field)) for field in self.schema.partition_fields), F.lit(True)
        )


@contextmanager
def new_rows(df: DataFrame, schema: Schema, keys: Sequence[Field], table: str) -> Iterator[NewRows]:
    """The rows of ``df`` for the block. Raises InvalidSchema with every misfit, as ``values_for``.

    They are computed once: the rows that are looked for are those that are written.
    """
    has = {name.lower() for name in df.columns}
    values = zip(schema.columns, values_for(df.schema, schema, table), strict=True)
    rows = selected(df, [named(value, _name(field)) for field, value in values if field.name.lower() in has])
    with computed_once(rows) as kept:
        yield NewRows(kept, schema, keys)


def _name(field: Field) -> str:
    return f" new {field.name}"  # no column of a table is named so: names do not begin with a space


def _new(field: Field) -> Column:
    return F.col(f"`{_name(field)}`")


def _old(field: Field) -> Column:
    return F.col(f"`{field.name}`")
