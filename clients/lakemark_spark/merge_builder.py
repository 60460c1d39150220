"""MERGE as a builder: clauses one after the other, then one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from lakemark import Client
from lakemark_spark.clauses import Clause, Expression
from lakemark_spark.connection import SERVER_DEFAULT, use_client
from lakemark_spark.row_changes import By, Changed, RowChange, change_rows
from lakemark_spark.sources import JoinBy


@dataclass(frozen=True)
class Merge:
    """A merge that is being put together; each method returns a new one. Made by ``merge``.

    Expressions are Spark SQL, or Columns; ``t`` is the table, ``s`` the source. Of the clauses for rows that match (and
    of those for rows that do not) the first whose condition is true applies.
    """

    source: DataFrame
    table: str
    on: str | Sequence[str] | None
    join: JoinBy
    server: str | Client
    metadata: Mapping[str, str] | None
    request_id: str | None
    branch: str
    clauses: tuple[Clause, ...] = ()

    def when_matched_update(
        self,
        set: Mapping[str, Expression],  # noqa: A002 - as in SQL, and in the builders that people know
        condition: Expression | None = None,
    ) -> Merge:
        """Sets these columns of rows that match: ``{"amount": "t.amount + s.amount"}``."""
        return self._with(Clause("update", condition, set))

    def when_matched_update_all(self, condition: Expression | None = None) -> Merge:
        """Sets all columns that the source has, by name; all of them are in the table."""
        return self._with(Clause("update", condition))

    def when_matched_delete(self, condition: Expression | None = None) -> Merge:
        """Deletes rows that match."""
        return self._with(Clause("delete", condition))

    def when_not_matched_insert(self, values: Mapping[str, Expression], condition: Expression | None = None) -> Merge:
        """Inserts a row with these values for each row of the source that matches none; other columns are null.

        In a table with a key the values of the key's columns are those of the source's row.
        """
        return self._with(Clause("insert", condition, values))

    def when_not_matched_insert_all(self, condition: Expression | None = None) -> Merge:
        """Inserts the rows of the source that match none; all of its columns are in the table."""
        return self._with(Clause("insert", condition))

    def execute(self) -> Changed:
        """Makes the changes, in one commit; ``commit`` of the answer is None if there are none.

        Raises CommitConflict if another commit or writer was first: nothing is changed then, ask again. Raises
        InvalidArgument, with an example, if the source has a key twice or with a null; InvalidSchema with every value
        that does not fit.
        """
        change = RowChange(self.clauses, By(self.source, self.on, self.join))
        with use_client(self.server) as client:
            return change_rows(
                client,
                self.source.sparkSession,
                self.table,
                change,
                metadata=self.metadata,
                request_id=self.request_id,
                branch=self.branch,
            )

    def _with(self, clause: Clause) -> Merge:
        return replace(self, clauses=(*self.clauses, clause))


def merge(
    df: DataFrame,
    table: str,
    on: str | Sequence[str] | None = None,
    *,
    join: JoinBy = "auto",
    server: str | Client = SERVER_DEFAULT,
    metadata: Mapping[str, str] | None = None,
    request_id: str | None = None,
    branch: str = "",
) -> Merge:
    """Begins a merge of the rows of ``df`` into ``database.table``: add clauses, then ``execute``.

    ``on``: the columns by which rows match, of which ``df`` has each combination once (None: the table's key). Rows are
    inserted into a table with a key by its key alone. ``join`` and conflicts are as in ``update``; the rest is as in
    ``upsert``.
    """
    return Merge(df, table, on, join, server, metadata, request_id, branch)
