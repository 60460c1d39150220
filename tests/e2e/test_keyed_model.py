"""Random changes of rows by key, compared with a model in memory: after each, or, in short runs, every other one.

Four readers look: ``lakemark_spark.read``, plain Spark, the client without Spark, and DuckDB, which reads the files of
a plan itself where they have no deltas. Compactions and clusterings lie in between, some of them with an upsert in
their middle; so do splits and merges of buckets, also in the middle of
upserts, compactions and clusterings. Some upserts are written while another one is; some changes are interrupted, and
asked for again. Every kind of table takes its turn, also one without a key, whose changes name one.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Final, TypeAlias, cast

import pytest

from lakemark import Client
from lakemark.files import groups_of
from lakemark_server.process import Service
from tests import engines
from tests.e2e.conftest import StartSpark
from tests.e2e.lake_spark.snippets import run
from tests.e2e.spark_runner import SparkProcess
from tests.lengths import long

pytestmark = pytest.mark.spark

COLUMNS: Final = {"id": "bigint", "a": "int", "b": "string", "t": "int", "p": "string"}
KEY: Final = ("id", "p")
ORDERING: Final = "t"
PARTITIONS: Final = ("x", "y/z=ü")
IDS: Final = 8
STEPS: Final = 5
LOOKED_AT: Final = (2, 5)
"""After which steps of a short run readers look. At its end they look at two older versions, in a long run at all."""
LONG_STEPS: Final = 30

BUCKETS: Final = {"lakemark.bucket.count": "2"}
MERGED: Final = {**BUCKETS, "lakemark.write.mode": "merge-on-read"}
EXTENDIBLE: Final = {"lakemark.bucket.index": "extendible", "lakemark.bucket.count": "1"}
KINDS: Final = {
    "merged": MERGED,
    "ordered": {**MERGED, "lakemark.merge.ordering-column": ORDERING, "lakemark.conflict.policy": "row"},
    "by_column": {**MERGED, "lakemark.merge.by": "column", "lakemark.conflict.policy": "column"},
    "rewritten": BUCKETS,
    "rewritten_ordered": {**BUCKETS, "lakemark.merge.ordering-column": ORDERING},
    "growing": {**MERGED, **EXTENDIBLE},
    "growing_ordered": {
        **MERGED,
        **EXTENDIBLE,
        "lakemark.merge.ordering-column": ORDERING,
        "lakemark.conflict.policy": "row",
    },
    "growing_by_column": {**MERGED, **EXTENDIBLE, "lakemark.merge.by": "column", "lakemark.conflict.policy": "column"},
    "growing_rewritten": {**BUCKETS, **EXTENDIBLE},
    # Without buckets rows are found by the bounds of their keys, and may lie in any file.
    "bounded": {"lakemark.clustering.columns": "a,b,id", "lakemark.clustering.order": "z-order"},
    "without_key": {},
}
WITHOUT_BUCKETS: Final = ("bounded", "without_key")
PARTIAL: Final = ("by_column", "rewritten", "growing_by_column", "growing_rewritten", *WITHOUT_BUCKETS)
"""Kinds in which an upsert may leave columns as they are."""
COMBINED: Final = ("rewritten_ordered", "growing_ordered", "growing_rewritten")
"""Kinds each part of which is in another kind as well: only in long runs."""

Row: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[Any, ...]


@dataclass
class Model:
    """What a table holds. ``deleted``: the ordering values of deletes that deltas or kept deletes tell of."""

    ordered: bool
    merged: bool
    rows: dict[Key, Row] = field(default_factory=dict)
    deleted: dict[Key, int] = field(default_factory=dict)

    def upsert(self, rows: Sequence[Row]) -> None:
        for row in rows:
            key = _key(row)
            if self._beaten(key, row):
                continue
            self.deleted.pop(key, None)
            self.rows[key] = {**self.rows.get(key, dict.fromkeys(COLUMNS)), **row}

    def delete(self, keys: Sequence[Row]) -> None:
        for row in keys:
            key = _key(row)
            if self._beaten(key, row):
                continue
            self.rows.pop(key, None)
            if self.ordered and self.merged:
                self.deleted[key] = row[ORDERING]

    def delete_where(self, matches: Callable[[Row], bool]) -> None:
        self.delete([row for row in self.rows.values() if matches(row)])

    def insert(self, rows: Sequence[Row]) -> None:
        """Rows whose key is there are left out; older ones than a delete that is told of lose to it."""
        self.upsert([row for row in rows if _key(row) not in self.rows])

    def update_where(self, matches: Callable[[Row], bool], change: Callable[[Row], Row]) -> None:
        for key, row in list(self.rows.items()):
            if matches(row):
                self.rows[key] = {**row, **change(row)}

    def merge(self, rows: Sequence[Row]) -> None:
        """Rows that match an even ``a`` are deleted, others added up; of new rows those with an ``a`` are inserted."""
        for row in rows:
            key = _key(row)
            old = self.rows.get(key)
            if old is None:
                if row["a"] is not None:
                    self.upsert([row])
            elif row["a"] is not None and row["a"] % 2 == 0:
                self.delete([old])
            else:
                total = None if old["a"] is None or row["a"] is None else old["a"] + row["a"]
                self.rows[key] = {**old, "a": total, "b": row["b"]}

    def overwrite(self, partition: str, rows: Sequence[Row]) -> None:
        self.rows = {key: row for key, row in self.rows.items() if row["p"] != partition}
        self.deleted = {key: at for key, at in self.deleted.items() if key[1] != partition}
        self.rows |= {_key(row): row for row in rows}

    def _beaten(self, key: Key, row: Row) -> bool:
        if not self.ordered:
            return False
        newest = max(
            (at for at in (self.rows.get(key, {}).get(ORDERING), self.deleted.get(key)) if at is not None), default=None
        )
        return newest is not None and newest > row[ORDERING]

    def table(self) -> list[list[Any]]:
        return sorted([[row[name] for name in COLUMNS] for row in self.rows.values()], key=repr)


def _key(row: Row) -> Key:
    return tuple(row[name] for name in KEY)


def _without(rows: Sequence[Row], column: str) -> list[Row]:
    return [{name: value for name, value in row.items() if name != column} for row in rows]


class Steps:
    """Random steps: what a child process runs, and what the model does."""

    def __init__(self, chance: random.Random, kind: str, model: Model) -> None:
        self._chance = chance
        self._kind = kind
        self._model = model
        self._number = 0
        self.keys = list(KEY) if kind == "without_key" else None

    def next(self) -> tuple[str, dict[str, Any]]:
        """The code of the next step with its names; the model has made it."""
        self._number += 1
        names = ["upsert", "upsert", "delete_keys", "delete", "overwrite", "insert", "update", "update_from", "merge"]
        names += ["cluster", "upserts_together", "interrupted", "interrupted"]
        properties = KINDS[self._kind]
        if "lakemark.write.mode" in properties:
            names += ["compact", "compact_beside"]
        if "lakemark.bucket.index" in properties:
            names += ["compact", "rebucket", "rebucket", "rebucket_beside", "rebucket_beside"]
        if self._kind in WITHOUT_BUCKETS:
            names = [name for name in names if name != "delete_keys"] + ["compact", "cluster"]
        if self._kind == "without_key":
            names += ["append"]
        first = self._number == 1
        return getattr(self, "_upsert" if first else f"_{self._chance.choice(names)}")()

    def _upsert(self) -> tuple[str, dict[str, Any]]:
        rows = self._rows()
        if self._kind in PARTIAL and self._chance.random() < 0.6:
            rows = _without(rows, self._chance.choice(["a", "b", "t"]))
        self._model.upsert(rows)
        return "ls.upsert(frame(rows), t, keys=keys, server=client)", {"rows": rows}

    def _append(self) -> tuple[str, dict[str, Any]]:
        """Of rows whose keys are not there: a key that a table has twice is not in the model."""
        rows = [row for row in self._rows() if _key(row) not in self._model.rows]
        if not rows:
            return self._compact()
        self._model.upsert(rows)
        return "ls.append(frame(rows), t, server=client)", {"rows": rows}

    def _upserts_together(self) -> tuple[str, dict[str, Any]]:
        """Two, of which one is committed in the middle of the other; it does not matter which of them is the first."""
        rows, others = self._rows(), self._rows()
        if self._model.ordered:
            rows = [{**row, ORDERING: row[ORDERING] // 2 * 2} for row in rows]
            others = [{**row, ORDERING: row[ORDERING] // 2 * 2 + 1} for row in others]
        elif self._kind in PARTIAL:
            rows, others = _without(rows, "a"), [{name: row[name] for name in (*KEY, "a")} for row in others]
        else:
            keys = {_key(row) for row in rows}
            others = [row for row in others if _key(row) not in keys] or rows
        self._model.upsert(rows)
        self._model.upsert(others)
        code = "ls.upsert(frame({}), t, keys=keys, server=client)"
        return f"together(lambda: {code.format('rows')}, lambda: {code.format('others')})", {
            "rows": rows,
            "others": others,
        }

    def _interrupted(self) -> tuple[str, dict[str, Any]]:
        """A change whose driver dies before or after its commit, or whose rows are lost with an executor."""
        changes = [self._upsert, self._delete, self._insert, self._update, self._update_from, self._merge]
        changes += [self._overwrite, self._cluster, self._compact]
        changes += [self._upsert if self._kind in WITHOUT_BUCKETS else self._delete_keys]
        changes += [self._append] if self._kind == "without_key" else []
        code, names = self._chance.choice(changes)()
        code = code.replace("server=client", "server=client, request_id=request").strip()
        moment = self._chance.choice(["before", "after", "executor"])
        return f"interrupted(moment, lambda: {code})", {
            **names,
            "moment": moment,
            "request": f"{self._kind} {self._chance.random()}",
        }

    def _delete_keys(self) -> tuple[str, dict[str, Any]]:
        rows = [{name: row[name] for name in (*KEY, ORDERING)} for row in self._rows()]
        self._model.delete(rows)
        return "ls.delete_keys(frame(rows), t, server=client)", {"rows": rows}

    def _delete(self) -> tuple[str, dict[str, Any]]:
        least = self._chance.randrange(100)
        self._model.delete_where(lambda row: row["a"] is not None and row["a"] >= least and row["id"] < 4)
        return "ls.delete(spark, t, where, server=client)", {"where": f"a >= {least} and id < 4"}

    def _insert(self) -> tuple[str, dict[str, Any]]:
        rows = self._rows()
        self._model.insert(rows)
        return "ls.insert(frame(rows), t, keys=keys, server=client)", {"rows": rows}

    def _update(self) -> tuple[str, dict[str, Any]]:
        least = self._chance.randrange(100)
        self._model.update_where(
            lambda row: row["a"] is not None and row["a"] >= least and row["id"] < 4,
            lambda row: {"a": row["a"] + 1, "b": None if row["b"] is None else row["b"] + "!"},
        )
        code = "ls.update(spark, t, {'a': 'a + 1', 'B': \"concat(b, '!')\"}, where, server=client)"
        return code, {"where": f"a >= {least} and id < 4"}

    def _update_from(self) -> tuple[str, dict[str, Any]]:
        """By one column of the key, or by all of it."""
        rows = list({row["id"]: row for row in self._rows()}.values())
        given = {row["id"]: row for row in rows}
        by_key = self._chance.random() < 0.5
        self._model.update_where(
            lambda row: row["id"] in given and (not by_key or given[row["id"]]["p"] == row["p"]),
            lambda row: {"b": given[row["id"]]["b"]},
        )
        code = "ls.update(spark, t, {'b': 's.b'}, source=frame(rows), on=on, join=join, server=client)"
        join = self._chance.choice(["auto", "broadcast", "shuffle"])
        return code, {"rows": rows, "on": self.keys if by_key else "id", "join": join}

    def _merge(self) -> tuple[str, dict[str, Any]]:
        rows = self._rows()
        self._model.merge(rows)
        code = """(ls.merge(frame(rows), t, keys, server=client).when_matched_delete("s.a % 2 = 0")
            .when_matched_update({"a": "t.a + s.a", "b": "s.b"}).when_not_matched_insert_all("s.a is not null")
            .execute())
            """
        return code, {"rows": rows}

    def _overwrite(self) -> tuple[str, dict[str, Any]]:
        partition = self._chance.choice(PARTITIONS)
        rows = [{**row, "p": partition} for row in {row["id"]: row for row in self._rows()}.values()]
        self._model.overwrite(partition, rows)
        return "ls.overwrite(frame(rows), t, partitions=[{'p': p}], server=client)", {"rows": rows, "p": partition}

    def _compact(self) -> tuple[str, dict[str, Any]]:
        """Sometimes each of the file groups, or of the larger ones, is written by a job of its own."""
        code = "sized(least, lambda: ls.compact(spark, t, server=client))"
        return code, {"least": self._chance.choice([1, 4, 1_000])}

    def _cluster(self) -> tuple[str, dict[str, Any]]:
        where = self._chance.choice([None, "p = 'x'", "a > 50"])
        columns = self._chance.choice(["b", "id", ["t", "b"]])
        names = {"where": where, "by": columns, "order": self._chance.choice(["sort", "z-order"])}
        return "ls.cluster(spark, t, where, columns=by, order=order, server=client)", names

    def _compact_beside(self) -> tuple[str, dict[str, Any]]:
        """An upsert is committed after the compaction, or clustering, has read, and before it commits."""
        rows = self._rows()
        self._model.upsert(rows)
        code, names = self._chance.choice([self._compact, self._cluster])()
        upsert = "ls.upsert(frame(rows), t, keys=keys, server=client)"
        return f"beside(lambda: {upsert}, lambda: {code})", {**names, "rows": rows}

    def _rebucket(self) -> tuple[str, dict[str, Any]]:
        return "rebucket(at, merge)", self._buckets()

    def _rebucket_beside(self) -> tuple[str, dict[str, Any]]:
        """Buckets are split or merged after an upsert, a compaction or a clustering has chosen its own, and before it
        commits."""
        code, names = self._chance.choice([self._upsert, self._delete_keys, self._compact, self._cluster])()
        return f"meanwhile(lambda: rebucket(at, merge), lambda: {code})", {**names, **self._buckets()}

    def _buckets(self) -> dict[str, Any]:
        return {"at": self._chance.randrange(100), "merge": self._chance.random() < 0.4}

    def _rows(self) -> list[Row]:
        keys = self._chance.sample([(one, p) for one in range(IDS) for p in PARTITIONS], self._chance.randint(1, 6))
        return [
            {
                "id": one,
                "a": self._chance.choice([None, self._chance.randrange(100)]),
                "b": self._chance.choice(["", "é", None, f"b{self._chance.randrange(9)}"]),
                "t": self._chance.randrange(20),
                "p": p,
            }
            for one, p in keys
        ]


HELPERS: Final = """
    import threading
    from contextlib import ExitStack
    from functools import reduce
    from unittest import mock
    from pyspark.sql import functions as F
    import lakemark, lakemark_spark as ls, lakemark_spark.compactions as compactions
    from lakemark import Writer
    from lakemark_core.errors import Unavailable
    from lakemark_core import bucket_tree as tree
    from lakemark_spark import layout
    client = lakemark.connect(address)
    def frame(rows):
        names = [name for name in columns if name in rows[0]]
        text = ", ".join(f"`{name}` {columns[name]}" for name in names)
        return spark.createDataFrame([tuple(row[name] for name in names) for row in rows], text)
    def sized(least, change):
        with mock.patch.object(compactions, "LARGE_ROWS", least):
            return change()
    def once(work):
        # By the first of the threads that come here. The others wait, but not what ``work`` itself calls.
        lock, done = threading.RLock(), []
        def first():
            with lock:
                if not done:
                    done.append(True)
                    work()
        return first
    def before(first, *functions):
        # A context in which ``first`` is called before each of these functions of modules.
        stack = ExitStack()
        for module, name in functions:
            real = getattr(module, name)
            def then(*args, real=real, **how):
                first()
                return real(*args, **how)
            stack.enter_context(mock.patch.object(module, name, then))
        return stack
    writes = ((layout, "_save"), (layout, "write_file"))
    def beside(work, change):
        first = once(work)
        with before(first, (compactions, "merged_rows")):
            change()
        first()  # there was nothing to merge
    def rebucket(at, merge):
        leaves = [tree.bucket_named(one.name) for one in client.buckets.list(t)]
        whole = sorted({tree.parent(one) for one in leaves if set(tree.children(tree.parent(one))) <= set(leaves)})
        if whole and (merge or len(leaves) > 8):
            client.buckets.alter(t, merge=[tree.group_name(whole[at % len(whole)])])
        else:
            client.buckets.alter(t, split=[tree.group_name(leaves[at % len(leaves)])])
    def meanwhile(work, change):
        first = once(work)
        with before(first, *writes):
            change()
        first()  # there was nothing to write
    def together(one, other):
        again = []
        def tried(change):
            try:
                change()
            except lakemark.CommitConflict:
                again.append(change)
        meanwhile(lambda: tried(one), lambda: tried(other))
        for change in again:
            change()
    class Killed(Exception):
        pass
    def interrupted(moment, change):
        real = Writer.commit
        def commit(*args, **how):
            if moment == "after":
                real(*args, **how)
            raise Killed
        def lose():
            for rdd in spark.sparkContext._jsc.getPersistentRDDs().values():
                rdd.unpersist(True)
        try:
            if moment == "executor":
                with before(lose, *writes):
                    return change()
            # Who is killed rolls nothing back.
            with mock.patch.object(Writer, "commit", commit), mock.patch.object(Writer, "__exit__", lambda *_: None):
                return change()
        except (Killed, Unavailable):
            return change()
    def changed(since, version):
        found = ls.changes(spark, t, since, version, before=True, server=client)
        return sorted([list(row) for row in found.select("lakemark_change", *columns).collect()], key=repr)
    def states(version, where):
        view = spark.table("{}.`{}@v{}`".format(*t.split("."), version))
        read = lambda **at: ls.read(spark, t, version=version, server=client, **at)
        frames = [read(where=where), view.where(where)]
        # One job for both; the places tell which row is of which.
        tagged = [frame.select(F.lit(at).alias("at"), *columns) for at, frame in enumerate(frames)]
        rows = reduce(lambda one, other: one.unionAll(other), tagged).collect()
        return [sorted([list(row[1:]) for row in rows if row[0] == at], key=repr) for at in range(len(frames))]
"""


def _play(
    client: Client,
    spark: SparkProcess,
    duckdb: DuckDb,
    kind: str,
    seed: int,
    steps: int,
    looked_at: Container[int] | None = None,
) -> None:
    """``looked_at``: after which steps, counted from 1; None: after each."""
    table = f"keyed.{kind}_{seed}"
    properties = {**({} if kind == "without_key" else {"lakemark.primary-key": ",".join(KEY)}), **KINDS[kind]}
    columns = ", ".join(f"{name} {column_type}" for name, column_type in COLUMNS.items())
    client.tables.create(table, columns, partitioned_by=["p"], properties=properties)
    model = Model("lakemark.merge.ordering-column" in properties, "lakemark.write.mode" in properties)
    chance = random.Random(seed)
    play = Steps(chance, kind, model)
    past: dict[int, list[list[Any]]] = {0: []}
    told: list[Any] = []
    for step in range(1, steps + 1):
        code, names = play.next()
        told.append((code, names))
        run(spark, code, t=table, keys=play.keys, **names)
        version = client.snapshot(table).version
        past[version] = model.table()
        one, least = chance.randrange(IDS), chance.randrange(100)
        # What the key says may be used below the merging, what another column says may not.
        wheres = ["true", f"a > {least}", f"id = {one} and p = 'x'", f"id in ({one}, 1) and p = 'x' and a > {least}"]
        where, since = chance.choice(wheres), chance.choice(sorted(past))
        if looked_at is not None and step not in looked_at:
            continue
        matching = [row for row in past[version] if _holds(where, dict(zip(COLUMNS, row, strict=True)))]
        states = run(spark, f"result = states({version}, {where!r})")
        assert states == [matching, matching], (where, told)
        assert _read(client, table, version, where) == matching, (where, told)
        assert duckdb.read(table, version, where) == matching, (where, told)
        assert _overlapping(client, table) == [], told
        changes = run(spark, f"result = changed({since}, {version})")
        assert changes == _changes(past[since], past[version], keyed=kind != "without_key"), (since, told)
    versions = sorted(past)[1:]
    for version in versions if looked_at is None else chance.sample(versions, min(2, len(versions))):
        everything = run(spark, f"result = states({version}, 'true')")
        everything += [_read(client, table, version, "true"), duckdb.read(table, version, "true")]
        assert everything == [past[version]] * 4, (version, told)


def _overlapping(client: Client, table: str) -> list[tuple[str, str]]:
    """Pairs of base files that may hold the same key: engines that read base files alone would see rows twice."""
    bases = [file for file in client.plan(table) if file.kind == "base" and file.bucket is not None]
    return [
        (one.path, other.path)
        for at, one in enumerate(bases)
        for other in bases[:at]
        if groups_of([one]).touch(other.partition, other.file_group)
    ]


def _read(client: Client, table: str, version: int, where: str) -> list[list[Any]]:
    """The rows without Spark."""
    rows = client.read(table, None if where == "true" else where, version=version)
    return sorted([[row[name] for name in COLUMNS] for row in rows.to_pylist()], key=repr)


class DuckDb:
    """A process that reads by DuckDB (``duckdb_child``)."""

    def __init__(self, server: str) -> None:
        self._process = subprocess.Popen(
            [engines.interpreter(), "-m", "tests.e2e.duckdb_child", server],
            env=engines.variables(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self, table: str, version: int, where: str) -> list[list[Any]]:
        request = {"table": table, "version": version, "where": where, "columns": list(COLUMNS)}
        requests, answers = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        print(json.dumps(request), file=requests, flush=True)
        answer = json.loads(answers.readline())
        assert isinstance(answer, list), answer
        return sorted(answer, key=repr)

    def close(self) -> None:
        self._process.communicate(timeout=30)


def _changes(before: list[list[Any]], after: list[list[Any]], *, keyed: bool) -> list[list[Any]]:
    """What a reader of changes is told, with the rows before they were updated.

    Without a key, nobody knows which row has become which.
    """
    names = ("update_before", "update_after") if keyed else ("delete", "insert")
    at = [list(COLUMNS).index(name) for name in KEY]
    old, new = ({tuple(row[one] for one in at): row for row in rows} for rows in (before, after))
    told = [["insert", *new[key]] for key in new.keys() - old.keys()]
    told += [["delete", *old[key]] for key in old.keys() - new.keys()]
    for key in old.keys() & new.keys():
        if old[key] != new[key]:
            told += [[names[0], *old[key]], [names[1], *new[key]]]
    return sorted(told, key=repr)


def _holds(where: str, row: Row) -> bool:
    if row["a"] is None and "a >" in where:
        return False
    return bool(eval(where.replace(" = ", " == ").replace("true", "True"), {}, row))  # noqa: S307


@pytest.fixture
def keyed(client: Client, service: Service, start_spark: StartSpark) -> SparkProcess:
    spark = start_spark("4.3", service.hms_uri)
    client.databases.create("keyed", if_not_exists=True)
    run(spark, HELPERS, address=service.grpc_address, columns=COLUMNS)
    return spark


@pytest.fixture(scope="module")
def duckdb(service: Service) -> Iterator[DuckDb]:
    reader = DuckDb(service.grpc_address)
    yield reader
    reader.close()


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in COMBINED else ()) for kind in KINDS]
)
def test_tables_are_what_their_changes_say(client: Client, keyed: SparkProcess, duckdb: DuckDb, kind: str) -> None:
    _play(client, keyed, duckdb, kind, 1, STEPS, LOOKED_AT)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(2, 2 + long(1)))
@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_what_their_changes_say_for_long(
    client: Client, keyed: SparkProcess, duckdb: DuckDb, kind: str, seed: int
) -> None:
    _play(client, keyed, duckdb, kind, seed, LONG_STEPS)
