"""Rows of a table changed by clauses (update, insert, merge), in one commit, in all kinds of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakemark import Client, Commit, DataFile, Plan, Writer
from lakemark.client.model import Operation
from lakemark_core.errors import FailedPrecondition, InvalidArgument, UnsupportedOperation
from lakemark_core.evolution.sql import quoted
from lakemark_core.expressions import to_sql
from lakemark_core.merge_sql import DELETE, UPSERT, check_delta_names, columns_text
from lakemark_core.table_kind import NEVER_WAITS, TableKind
from lakemark_core.types import Field
from lakemark_spark import layout
from lakemark_spark.batches import Batch, batch_of, computed_once
from lakemark_spark.clauses import CLAUSE, TARGET, Clause, Clauses, clauses_for, misfit
from lakemark_spark.deltas import as_log, delete_columns, write_deltas
from lakemark_spark.footers import check_not_null, describe_files
from lakemark_spark.group_rewrites import rewrite_groups
from lakemark_spark.groups import files_of_groups, plan_of_groups, write_batch
from lakemark_spark.keys import example_sql, key_fields, ranges_of
from lakemark_spark.kinds import key_columns
from lakemark_spark.queries import selected, text_sql
from lakemark_spark.reader import merged_rows, numbered_rows
from lakemark_spark.rewrites import FILE, planned_bases, write_again
from lakemark_spark.sessions import is_deterministic
from lakemark_spark.sizes import file_size
from lakemark_spark.sources import JoinBy, Source, bucketed_source_of, check_join, source_of

_COUNTS: Final = "lakemark.rows."
"""Begins the names under which a commit's metadata has the counts, so that a repeated request gets them, too."""

_NAMES: Final = ("inserted", "updated", "deleted", "ignored")
_DONE: Final = {"insert": "inserted", "update": "updated", "delete": "deleted"}

_COARSE: Final = frozenset({"table", "partition"})
"""Policies under which two writers that insert into one partition exclude each other, whatever they insert."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change of rows has done. ``commit`` None: there was nothing to change, and nothing is committed.

    ``ignored``: rows of an ``insert`` whose key was there already.
    """

    commit: Commit | None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0


@dataclass(frozen=True)
class By:
    """The rows that change a table, joined with it by the columns ``on`` (None: the table's key)."""

    source: DataFrame
    on: str | Sequence[str] | None = None
    join: JoinBy = "auto"


@dataclass(frozen=True)
class RowChange:
    """A change of rows: of those that match ``by``, or without it of those for which ``where`` (Spark SQL) is true."""

    clauses: Sequence[Clause]
    by: By | None = None
    where: str | None = None


def change_rows(
    client: Client,
    spark: SparkSession,
    table: str,
    change: RowChange,
    *,
    metadata: Mapping[str, str] | None,
    request_id: str | None,
    branch: str,
) -> Changed:
    """Commits the change. Raises as ``upsert`` does, and InvalidArgument for clauses that contradict the table."""
    by = change.by
    if by is not None:
        check_join(by.join)
    definition = client.tables.get(table)
    kind, policy = definition.table_kind, definition.conflict_policy
    if by is not None:
        by = replace(by, on=key_columns(by.on, kind if by.on is None else TableKind(), table))
    operation = _operation(kind, policy, inserts=any(clause.action == "insert" for clause in change.clauses))
    with client.begin(table, operation, start=False, request_id=request_id, branch=branch) as writer:
        if writer.committed:
            return _recorded(client, writer.commit(), table, branch)
        if kind.merges_on_read and kind.buckets:
            check_delta_names(writer.schema, table)
        run = _Buckets if kind.buckets else _Files
        change = replace(change, by=by)
        size = None if kind.buckets else file_size(client, table, definition.properties, branch)
        return run(client, spark, writer, kind, policy, change, branch, size).commit(dict(metadata or {}))


def _operation(kind: TableKind, policy: str, *, inserts: bool) -> Operation:
    """What the commit is to the conflict rules (docs/conflicts.md).

    It has read the rows that it changes, so it must not go by the rule under which upserts pass by each other (``row``,
    ``column``); and of two that insert a key that neither has seen only one may win, where no file group tells.
    """
    if kind.buckets:
        return "overwrite_predicate" if kind.merges_on_read and policy in NEVER_WAITS else "upsert"
    return "overwrite_predicate" if inserts and policy not in _COARSE else "upsert"


def _recorded(client: Client, commit: Commit, table: str, branch: str) -> Changed:
    """What a commit of an earlier request has done; no counts if its version is kept no longer."""
    versions = client.timeline.versions(table, branch=branch, after=commit.version - 1, limit=1)
    told = versions[0].metadata if versions and versions[0].version == commit.version else {}
    return _changed(commit, {name: int(told.get(_COUNTS + name, 0)) for name in _NAMES})


def _changed(commit: Commit | None, counts: Mapping[str, int]) -> Changed:
    return Changed(commit, **counts)


@dataclass
class _Change:
    """One attempt to make a change with a writer that has not started yet."""

    client: Client
    spark: SparkSession
    writer: Writer
    kind: TableKind
    policy: str
    change: RowChange
    branch: str
    size: layout.FileSize | None

    def commit(self, metadata: dict[str, str]) -> Changed:
        with ExitStack() as stack:
            return self._commit(stack, metadata)

    def _commit(self, stack: ExitStack, metadata: dict[str, str]) -> Changed:
        raise NotImplementedError

    def _plan(self, where: str | None) -> Plan:
        return self.client.plan(self.writer.table, where, version=self.writer.read_version, branch=self.branch)

    def _planned_where(self) -> tuple[Plan, Clauses]:
        plan = self._plan(self.change.where)
        self.writer.schema = plan.schema  # as it was read: a branch may be behind the table's latest schema
        return plan, self._clauses()

    def _plan_of(self, source: Source) -> Plan:
        """The files that may hold one of the source's keys."""
        ranges = to_sql(ranges_of(source.rows, source.keys, self.writer.schema, source.count))
        # The files of a branch that is behind the table may have the columns under other names.
        behind = self._schema_of_branch() != self.writer.schema.schema_id
        return self._plan(None if behind else ranges)

    def _schema_of_branch(self) -> int:
        writer = self.writer
        at = self.client.plan(writer.table, version=writer.read_version, branch=self.branch, limit=1)
        return at.schema.schema_id

    def _clauses(self) -> Clauses:
        by = self.change.by
        clauses = clauses_for(
            self.change.clauses, self.writer.schema, () if by is None else by.source.columns, self.writer.table
        )
        self._check_key(clauses)
        return clauses

    def _fields_on(self) -> list[Field]:
        by = self.change.by
        return [] if by is None else key_fields(by.on or (), self.writer.schema, by.source.columns, self.writer.table)

    def _check_key(self, clauses: Clauses) -> None:
        key = self.kind.key_fields(self.writer.schema)
        if not key:
            return
        table = self.writer.table
        by_key = set(key) == set(self._fields_on())
        if clauses.inserts and not by_key:
            raise UnsupportedOperation(
                f"rows are inserted into {table} by its key ({', '.join(self.kind.key)}), so that none comes twice: "
                "leave out 'on', or the clause that inserts",
                table=table,
            )
        lacking = {
            field.name: None
            for at in clauses.numbers("insert")
            for field in key
            if field.name not in clauses.assigned[at]
        }
        if lacking:
            reasons = [f"column '{name}' of the key has no value in rows that are inserted" for name in lacking]
            raise misfit(reasons, table)
        for at, clause in enumerate(clauses.clauses):
            # Where the key was matched, the source has the same values.
            changed = {} if clause.values is None and by_key else clauses.assigned[at]
            names = [repr(field.name) for field in key if field.name in changed]
            if clause.action == "update" and names:
                raise UnsupportedOperation(
                    f"{', '.join(names)}: an update does not change the key of {table}, which tells its rows apart; "
                    "delete the row, and insert it with its new key",
                    table=table,
                )

    def _joined(self, target: DataFrame, source: Source | None, plan: Plan, *, keep: bool = False) -> DataFrame:
        """``target`` as ``t`` beside the source's rows: those that match alone, unless ``keep`` keeps the others."""
        rows = target.alias(TARGET)
        if source is not None:
            return rows.join(source.side(), source.same_key(), "left" if keep else "inner")
        condition = self._condition(plan)
        return rows if keep else rows.where(condition)

    def _condition(self, plan: Plan) -> Column:
        return F.expr(plan.summary.residual) if plan.summary.residual else F.lit(True)

    def _nothing(self, counts: Mapping[str, int]) -> Changed:
        self.writer.rollback("there is no row to change")
        return _changed(None, counts)

    def _counted(self, metadata: dict[str, str], counts: Mapping[str, int]) -> dict[str, str]:
        return {**metadata, **{_COUNTS + name: str(count) for name, count in counts.items() if count}}


class _Buckets(_Change):
    """In a table with buckets: the changes of keys are a batch as that of an upsert."""

    def _commit(self, stack: ExitStack, metadata: dict[str, str]) -> Changed:
        writer, kind = self.writer, self.kind
        source, plan, files, clauses = self._looked_up(stack)
        actions = self._actions(clauses, source, plan, files)
        required = kind.required_fields(writer.schema)
        # With deletes at once: files that are written again do not tell which keys were deleted.
        at_once = not kind.merges_on_read and bool(clauses.numbers("delete"))
        batch = stack.enter_context(batch_of(actions, writer.schema, kind, writer.table, required, at_once=at_once))
        counts = self._counts(batch.rows, clauses)
        if clauses.inserts and not clauses.matched and source is not None:
            counts["ignored"] = source.count - counts["inserted"]
        if not batch.groups:
            return self._nothing(counts)
        looked_into = [group.partition for group in source.groups] if source is not None and source.groups else []
        looked_into += [file.partition for file in files]
        names = sorted({group.name for group in batch.groups})
        writer.start(
            list(dict.fromkeys([*looked_into, *(group.partition for group in batch.groups)])), file_groups=names
        )
        added, removed = self._write(batch, clauses, plan, files)
        return _changed(
            writer.commit(added, removed=[file.path for file in removed], metadata=self._counted(metadata, counts)),
            counts,
        )

    def _counts(self, rows: DataFrame, clauses: Clauses) -> dict[str, int]:
        """How many rows have been inserted, updated and deleted, by ``CLAUSE``."""
        counts = dict.fromkeys(_NAMES, 0)
        for number, count in rows.groupBy(quoted(CLAUSE)).count().collect():
            if number is not None:
                counts[_DONE[clauses.clauses[number].action]] += count
        return counts

    def _looked_up(self, stack: ExitStack) -> tuple[Source | None, Plan, list[DataFile], Clauses]:
        """The source, and the files that may hold the rows that it changes."""
        writer, kind, by = self.writer, self.kind, self.change.by
        if by is None:
            plan, clauses = self._planned_where()
            return None, plan, plan.files(), clauses
        clauses, fields = self._clauses(), self._fields_on()
        if set(fields) == set(kind.key_fields(writer.schema)):
            by_bucket = bucketed_source_of(by.source, writer.schema, kind, writer.table, by.join)
            source = stack.enter_context(by_bucket)
            plan = plan_of_groups(self.client, writer, self.branch, source.groups)
            return source, plan, files_of_groups(plan, source.groups), clauses
        source = stack.enter_context(source_of(by.source, writer.schema, fields, writer.table, by.join))
        plan = self._plan_of(source)
        return source, plan, plan.files(), clauses

    def _actions(self, clauses: Clauses, source: Source | None, plan: Plan, files: Sequence[DataFile]) -> DataFrame:
        """The table's columns of all rows that change, and ``CLAUSE``."""
        target = merged_rows(self.spark, plan, files, self.kind, self.writer.schema)
        more = [] if source is None else source.key_names
        matched = clauses.told(self._joined(target, source, plan), inserted=False)
        changed = clauses.applied(matched, inserted=False).where(F.col(quoted(CLAUSE)).isNotNull())
        if not clauses.inserts or source is None:
            return changed
        there = self._joined(target, source, plan).select(*(F.col(quoted(name)) for name in more))
        inserted = _inserted(clauses, source, there, self.kind)
        return changed.unionAll(inserted) if clauses.matched else inserted

    def _write(
        self, batch: Batch, clauses: Clauses, plan: Plan, files: Sequence[DataFile]
    ) -> tuple[list[DataFile], list[DataFile]]:
        """The files that are added, and those that these replace."""
        writer, kind = self.writer, self.kind
        if kind.directory is not None:
            # Files with other keys of these groups, which the condition has left out, are written again with them.
            plan = plan_of_groups(self.client, writer, self.branch, batch.groups)
            files = plan.files()
        old = files_of_groups(files, batch.groups)
        upserts_only = not clauses.numbers("delete")
        if not old and kind.merge_by == "row" and upserts_only and self.policy not in NEVER_WAITS:
            return write_batch(batch, writer, kind), []
        deleted = clauses.applies("delete")
        operation = F.when(deleted, DELETE).otherwise(UPSERT)
        columns = [
            *delete_columns(writer.schema, kind, deleted),
            *(F.col(quoted(name)) for name in batch.rows.columns if writer.schema.find(name) is None),
        ]
        rows = batch.rows.select(*columns)
        if not kind.merges_on_read:
            log = as_log(rows, operation, writer.instant, None)
            return rewrite_groups(log, batch, plan, old, writer, replace(kind, merge_by="row")), old
        log = as_log(rows, operation, writer.instant, self._columns_text(clauses))
        return write_deltas(log, batch, writer, kind, files), []

    def _columns_text(self, clauses: Clauses) -> Column | None:
        """In a table that is merged by column an update has the columns that it sets, and leaves others to others."""
        if self.kind.merge_by != "column":
            return None
        schema = self.writer.schema
        key = self.kind.key_fields(schema)
        text: Column = F.lit(None).cast("string")
        for at in clauses.numbers("update", "insert"):
            fields = [one for one in schema.columns if one in key or one.name in clauses.assigned[at]]
            text = F.when(F.col(quoted(CLAUSE)) == at, F.lit(columns_text(fields))).otherwise(text)
        return text


class _Files(_Change):
    """In a table without buckets: files with rows that change are written again."""

    def _commit(self, stack: ExitStack, metadata: dict[str, str]) -> Changed:
        writer, table = self.writer, self.writer.table
        by = self.change.by
        source: Source | None = None
        if by is None:
            plan, clauses = self._planned_where()
        else:
            clauses = self._clauses()
            kept = source_of(by.source, writer.schema, self._fields_on(), table, by.join)
            source = stack.enter_context(kept)
            plan = self._plan_of(source)
        files = planned_bases(plan, table)
        hits = stack.enter_context(computed_once(self._hits(clauses, source, plan, files)))
        counts, changed = self._tallied(hits, clauses, files)
        fresh = [hits.where(self._moves(clauses)).select(*self._columns())] if self._moved_fields(clauses) else []
        if source is not None and clauses.inserts:
            there = hits.select(*(F.col(quoted(name)) for name in source.key_names))
            inserted = stack.enter_context(computed_once(_inserted(clauses, source, there, self.kind)))
            counts["inserted"] = inserted.count()
            counts["ignored"] = 0 if clauses.matched else source.count - counts["inserted"]
            fresh.append(inserted.select(*self._columns()))
        if not changed and not counts["inserted"]:
            return self._nothing(counts)
        may_move = self._may_move(clauses)
        # Which partitions new rows have is known when they are written.
        new = [] if may_move else self._new_files(fresh)
        places = [] if may_move else list(dict.fromkeys(file.partition for file in (*files, *new)))
        writer.start(places, whole_table=may_move, file_groups=list(dict.fromkeys(file.file_group for file in changed)))
        if may_move:
            new = self._new_files(fresh)
        added = [*new, *self._again(clauses, source, plan, changed)]
        check_not_null(added, writer.schema, table)
        self._check_count(added, changed, counts)
        removed = [file.path for file in changed]
        return _changed(writer.commit(added, removed=removed, metadata=self._counted(metadata, counts)), counts)

    def _tallied(
        self, hits: DataFrame, clauses: Clauses, files: Sequence[DataFile]
    ) -> tuple[dict[str, int], list[DataFile]]:
        """How many rows are updated and deleted, and the files that have them: by one job."""
        counts, changed = dict.fromkeys(_NAMES, 0), set()
        if clauses.matched:
            rows = hits.where(F.col(quoted(CLAUSE)).isNotNull()).groupBy(quoted(CLAUSE), quoted(FILE)).count()
            for number, at, count in rows.collect():
                counts[_DONE[clauses.clauses[number].action]] += count
                changed.add(at)
        return counts, [file for at, file in enumerate(files) if at in changed]

    def _check_count(self, added: Sequence[DataFile], removed: Sequence[DataFile], counts: Mapping[str, int]) -> None:
        """Raises FailedPrecondition if rows were lost or came twice.

        Which rows change is computed twice: to find the files, and to write these again.
        """
        before, written = (sum(file.row_count for file in files) for files in (removed, added))
        expected = before + counts["inserted"] - counts["deleted"]
        if written != expected:
            raise FailedPrecondition(
                f"{self.writer.table}: {expected} rows were to be written, and {written} were: a condition of the "
                "change was not the same each time that it was computed, as with rand(); nothing is changed. Compute "
                "such values in the source"
            )

    def _hits(self, clauses: Clauses, source: Source | None, plan: Plan, files: Sequence[DataFile]) -> DataFrame:
        """All rows that match, as they are then, with ``CLAUSE``, their file and the partition that they were in."""
        old = numbered_rows(self.spark, plan, files, self.writer.schema, FILE)
        more = [FILE, *self._old_places(), *(() if source is None else source.key_names)]
        joined = self._with_places(self._joined(old, source, plan))
        rows = clauses.applied(clauses.told(joined, inserted=False), inserted=False, more=more)
        if self._moved_fields(clauses) and not is_deterministic(rows):
            raise InvalidArgument(
                f"an update that sets partition columns of {self.writer.table} computes its values twice, so they "
                "cannot come from rand(), uuid() or the like: compute such values in the source"
            )
        # Where nothing but new keys matters, no other column is read.
        return rows if clauses.matched else rows.select(*(F.col(quoted(name)) for name in (CLAUSE, *more)))

    def _again(
        self, clauses: Clauses, source: Source | None, plan: Plan, changed: Sequence[DataFile]
    ) -> list[DataFile]:
        """The files that take the places of ``changed``."""
        if not changed:
            return []
        old = numbered_rows(self.spark, plan, changed, self.writer.schema, FILE)
        joined = self._with_places(self._joined(old, source, plan, keep=True))
        among = self._condition(plan) if source is None else source.is_there()
        rows = clauses.applied(
            clauses.told(joined, inserted=False, among=among), inserted=False, more=[FILE, *self._old_places()]
        )
        clause = F.col(quoted(CLAUSE))
        stays = clause.isNull() | ~(clauses.applies("delete") | self._moves(clauses))
        return write_again(rows.where(stays).select(*self._columns(), F.col(quoted(FILE))), changed, self.writer)

    def _new_files(self, fresh: Sequence[DataFrame]) -> list[DataFile]:
        """The files of rows that take no other row's place."""
        if not fresh:
            return []
        rows, schema = reduce(DataFrame.unionAll, fresh), self.writer.schema
        attempt = layout.Attempt.new(self.writer.location)
        layout.write(rows, schema, attempt, distribute=True, size=self.size)
        return describe_files(self.spark, layout.written_files(attempt), self.writer.location, schema)

    def _may_move(self, clauses: Clauses) -> bool:
        """Whether a row may come to lie in a partition that was not looked into."""
        partitions = set(self.writer.schema.partition_columns)
        elsewhere = clauses.inserts and not partitions <= {field.name for field in self._fields_on()}
        return elsewhere or bool(self._moved_fields(clauses))

    def _moved_fields(self, clauses: Clauses) -> list[str]:
        """The partition columns that an update sets."""
        return [field.name for field in clauses.changed_fields() if self.writer.schema.is_partition(field.name)]

    def _moves(self, clauses: Clauses) -> Column:
        """Whether a row of ``_with_places`` has been updated to lie in another partition."""
        names = self._moved_fields(clauses)
        if not names:
            return F.lit(False)
        same = reduce(and_, (F.col(quoted(name)).eqNullSafe(F.col(quoted(_place(name)))) for name in names))
        return clauses.applies("update") & ~same

    def _with_places(self, rows: DataFrame) -> DataFrame:
        names = self.writer.schema.partition_columns
        return rows.select("*", *(F.col(f"{TARGET}.{quoted(name)}").alias(_place(name)) for name in names))

    def _old_places(self) -> list[str]:
        return [_place(name) for name in self.writer.schema.partition_columns]

    def _columns(self) -> list[Column]:
        return [F.col(quoted(field.name)) for field in self.writer.schema.columns]


def _inserted(clauses: Clauses, source: Source, there: DataFrame, kind: TableKind) -> DataFrame:
    """The table's columns and ``CLAUSE`` of source rows whose keys are not among those of ``there`` (``key_names``).

    In a table with a key the job fails if a row is to get another key than that of the source's row: nobody has looked
    whether the table has it, nor which files it belongs to, and another row may get the same one.
    """
    names = [f" there {name}" for name in source.key_names]
    known = there.select(*(F.col(quoted(old)).alias(new) for old, new in zip(source.key_names, names, strict=True)))
    pairs = zip(source.key_names, names, strict=True)
    same = reduce(and_, (F.col(quoted(key)) == F.col(quoted(other)) for key, other in pairs))
    rows = clauses.told(source.side().join(known, same, "left_anti"), inserted=True)
    rows = clauses.applied(rows, inserted=True, more=source.key_names).where(F.col(quoted(CLAUSE)).isNotNull())
    names = [field.name for field in clauses.schema.columns] + [CLAUSE]
    if kind.key and any(clauses.clauses[at].values is not None for at in clauses.numbers("insert")):
        first = source.keys[0].name
        checked = {first: f"{_same_key_sql(source, clauses.table)} AS {quoted(first)}"}
        return selected(rows, [checked.get(name, quoted(name)) for name in names])
    return rows.select(*(F.col(quoted(name)) for name in names))


def _same_key_sql(source: Source, table: str) -> str:
    """The first column of the key of a row that is inserted, if all are the same in the source's row."""
    own = [quoted(field.name) for field in source.keys]
    given = [quoted(name) for name in source.key_names]
    same = " AND ".join(f"{one} <=> {other}" for one, other in zip(own, given, strict=True))
    example = example_sql(source.keys, source.key_names)
    told = [
        text_sql(f"a row is inserted into {table} with another key than its row of the source has, "),
        example_sql(source.keys),
        text_sql(" instead of "),
        example,
        text_sql(": the table is looked into for the source's keys alone; give the source the keys that you want"),
    ]
    return f"CASE WHEN {same} THEN {own[0]} ELSE raise_error(concat({', '.join(told)})) END"


def _place(name: str) -> str:
    return f" was {name}"
