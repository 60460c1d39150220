"""What becomes of rows that a source matches, and of source rows that match none: the clauses of update and merge.

In the expressions of clauses ``t`` is the table and ``s`` the source, as in ``t.amount + s.amount``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakemark_core.errors import InvalidArgument, InvalidSchema
from lakemark_core.evolution.sql import quoted
from lakemark_core.types import Field, Schema
from lakemark_spark.queries import as_column
from lakemark_spark.schema import to_spark, value_for

TARGET: Final = "t"
SOURCE: Final = "s"

CLAUSE: Final = " clause"
"""The number of the clause that applies to a row; null: none. No column of a table begins with a space."""

Expression: TypeAlias = str | Column
"""Spark SQL, or a column."""

Action: TypeAlias = Literal["update", "delete", "insert"]


@dataclass(frozen=True)
class Clause:
    """``condition`` None: always. ``values``: by column; None: all columns of the source, by name."""

    action: Action
    condition: Expression | None = None
    values: Mapping[str, Expression] | None = None


@dataclass(frozen=True)
class Clauses:
    """Clauses for a table of this schema. Of several with one action's rows the first whose condition holds applies.

    ``assigned``: what each of them sets, in the order of ``clauses``; columns have the names of the schema.
    """

    clauses: Sequence[Clause]
    assigned: Sequence[Mapping[str, Expression]]
    schema: Schema
    table: str

    @property
    def inserts(self) -> bool:
        """Whether one of them inserts rows."""
        return any(clause.action == "insert" for clause in self.clauses)

    @property
    def matched(self) -> bool:
        """Whether one of them changes rows that are there."""
        return any(clause.action != "insert" for clause in self.clauses)

    def changed_fields(self) -> list[Field]:
        """The columns that an update sets."""
        names = {
            name
            for clause, values in zip(self.clauses, self.assigned, strict=True)
            if clause.action == "update"
            for name in values
        }
        return [field for field in self.schema.columns if field.name in names]

    def numbers(self, *actions: Action) -> list[int]:
        """The clauses with one of these actions."""
        return [at for at, clause in enumerate(self.clauses) if clause.action in actions]

    def applies(self, *actions: Action) -> Column:
        """Whether one of the clauses with these actions applies to a row; never null."""
        numbers = self.numbers(*actions)
        return F.coalesce(F.col(quoted(CLAUSE)).isin(*numbers), F.lit(False)) if numbers else F.lit(False)

    def told(self, rows: DataFrame, *, inserted: bool, among: Column | None = None) -> DataFrame:
        """``rows`` with ``CLAUSE``: by the clauses that insert, or by the others. ``among``: for no other rows."""
        which = [at for at, clause in enumerate(self.clauses) if (clause.action == "insert") == inserted]
        number: Column = F.lit(None).cast("int")
        for at in reversed(which):
            condition = self.clauses[at].condition
            number = F.lit(at) if condition is None else F.when(_column(condition), F.lit(at)).otherwise(number)
        if among is not None:
            number = F.when(among, number)
        return rows.select("*", number.cast("int").alias(CLAUSE))

    def applied(self, rows: DataFrame, *, inserted: bool, more: Sequence[str] = ()) -> DataFrame:
        """The table's columns of ``rows`` (of ``told``) after their clauses, then ``CLAUSE`` and the columns ``more``.

        Rows without a clause, and those that are deleted, are as they were. Raises InvalidSchema with every misfit.
        """
        which = [at for at in self.numbers("insert" if inserted else "update") if self.assigned[at]]
        clause = F.col(quoted(CLAUSE))
        named = {(at, name): f" {at} {name}" for at in which for name in self.assigned[at]}
        # Computed for the rows of the clause alone: for others an expression may fail.
        computed = [
            F.when(clause == at, _column(self.assigned[at][name])).alias(alias) for (at, name), alias in named.items()
        ]
        kept = [] if inserted else [F.col(f"{TARGET}.{quoted(field.name)}") for field in self.schema.columns]
        others = [F.col(quoted(name)) for name in (CLAUSE, *more)]
        staged = rows.select(*kept, *computed, *others)
        columns, reasons = [], []
        for field in self.schema.columns:
            value = F.lit(None).cast(to_spark(field.type)) if inserted else F.col(quoted(field.name))
            for at in which:
                alias = named.get((at, field.name))
                if alias is None:
                    continue
                given, unfit = value_for(staged.schema[alias], field)
                reasons += unfit
                value = F.when(clause == at, as_column(given)).otherwise(value)
            columns.append(value.alias(field.name))
        if reasons:
            raise misfit(list(dict.fromkeys(reasons)), self.table)
        return staged.select(*columns, *others)


def clauses_for(clauses: Sequence[Clause], schema: Schema, given: Iterable[str], table: str) -> Clauses:
    """The clauses with what they set. ``given``: the columns of the source.

    Raises InvalidArgument if there are none, or one that can never apply; InvalidSchema for columns that are not there.
    """
    if not clauses:
        raise InvalidArgument(f"the merge into {table} has no clause that says what to do with its rows: give one")
    columns = list(given)
    for at, clause in enumerate(clauses):
        before = [one for one in clauses[:at] if (one.action == "insert") == (clause.action == "insert")]
        if any(one.condition is None for one in before):
            raise InvalidArgument(
                f"a clause of the merge into {table} ({clause.action}) comes after one without a condition, so it "
                "never applies: give the earlier one a condition, or leave this one out"
            )
        if clause.values is not None and not clause.values:
            raise InvalidArgument(f"a clause of the change of {table} ({clause.action}) sets no column")
    return Clauses(clauses, [_assigned(clause, schema, columns, table) for clause in clauses], schema, table)


def misfit(reasons: Sequence[str], table: str) -> InvalidSchema:
    """The refusal of values that do not fit the table's columns."""
    return InvalidSchema(f"the values do not fit {table}: {'; '.join(reasons)}", table=table)


def _assigned(clause: Clause, schema: Schema, given: Sequence[str], table: str) -> Mapping[str, Expression]:
    if clause.action == "delete":
        return {}
    if clause.values is None:
        unknown = [name for name in given if schema.find(name) is None]
        if unknown:
            raise misfit([f"column '{name}' of the source is not in the table" for name in unknown], table)
        values: dict[str, Expression] = {schema.field(name).name: F.col(f"{SOURCE}.{quoted(name)}") for name in given}
    else:
        values = {schema.field(name).name: value for name, value in clause.values.items()}
        if len(values) < len(clause.values):
            raise InvalidArgument(f"a clause of the change of {table} sets a column twice (case does not matter)")
    if clause.action == "insert":
        missing = [
            field.name
            for field in schema.columns
            if field.name not in values and (not field.nullable or schema.is_partition(field.name))
        ]
        if missing:
            raise misfit([f"column '{name}' has no value in rows that are inserted" for name in missing], table)
    return values


def _column(expression: Expression) -> Column:
    return F.expr(expression) if isinstance(expression, str) else expression
