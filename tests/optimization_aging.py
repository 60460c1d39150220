"""Tables of the simulated world whose planner acts by itself: old partitions go, buckets that have grown are split.

Each has a model. Whatever the planner has removed must have been old enough, as the model knows it; nothing else may be
missing, and nothing may be there twice.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from dataclasses import dataclass
from typing import Final

from lakemark_core.bucket_tree import above, group_name
from lakemark_core.errors import CommitConflict
from lakemark_core.optimization import FRAGMENTS_PROPERTY, GROUP_PROPERTY
from lakemark_core.partition_ttl import COLUMN_PROPERTY, TTL_MS_MIN, TTL_PROPERTY
from lakemark_core.types import BIGINT, INT, STRING, Field, Schema, assign_ids
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1.types_pb2 import DataFile, Value
from lakemark_server.catalog import lake as lake_tables
from lakemark_server.optimization.expiries import NOTICE_MS
from lakemark_server.optimization.service import Optimization
from lakemark_server.snapshots.service import SnapshotReference
from lakemark_server.timeline.publication.commits import CommitDraft
from tests.lakes import Lake, files

HOUR: Final = "h"
HOURLY: Final = assign_ids(Schema.build([Field(0, "id", BIGINT), Field(0, HOUR, STRING)], [HOUR], 1))[0]
SCHEMA: Final = assign_ids(Schema.build([Field(0, "id", BIGINT), Field(0, "m", INT)], ["m"], 1))[0]
MONTHS: Final = 4
ROWS: Final = 3  # of each file that a writer adds
TTL_MS: Final = TTL_MS_MIN
SPLIT_BYTES: Final = 1_000_000
WHOLE_TABLE: Final = ""  # of which a hold is


@dataclass(frozen=True)
class Made:
    """A file. ``made_ms``: when the instant began that has written it, or older files were brought back."""

    hour: str
    rows: int
    made_ms: int


@dataclass(frozen=True)
class Bucketed:
    """A base file of a bucket."""

    month: int
    bucket: int
    size: int
    rows: int


class Aging:
    """A table with a partition for each hour. It goes an hour after it has ended, or after its last change.

    Merges of the optimizer are changes, too.
    """

    def __init__(self, lake: Lake, name: str, group: str, fragments: int, *, by_hour: bool) -> None:
        self.lake, self.by_hour = lake, by_hour
        record = LakeTableRecord(
            database="default",
            name=name,
            properties={
                GROUP_PROPERTY: group,
                FRAGMENTS_PROPERTY: str(fragments),
                TTL_PROPERTY: str(TTL_MS),
                **({COLUMN_PROPERTY: HOUR} if by_hour else {}),
            },
        )
        self.table = lake.catalog.create_lake_table(record, HOURLY)
        self.files: dict[str, Made] = {}
        self.version = 0
        self.departed = 0
        self._states: dict[int, dict[str, Made]] = {}
        self._quiet_until_ms = lake.clock.ms + NOTICE_MS
        """Nothing may go before: the time to live is new, or older files were brought back."""
        self._held_until_ms: dict[str, int] = {}  # by partition
        self._paused = False

    @property
    def rows(self) -> int:
        """How many the latest version has."""
        return sum(one.rows for one in self.files.values())

    def act(self, rng: random.Random, optimization: Optimization) -> None:
        """What writers and users do."""
        match rng.choices(("append", "restore", "hold", "release", "pause", "resume"), (20, 3, 3, 1, 0.3, 1))[0]:
            case "append":
                self._append(rng)
            case "restore":
                if self._states:
                    self._restore(rng.choice(sorted(self._states)))
            case "hold":
                partition = rng.choice((WHOLE_TABLE, *self._partitions()))
                hold = optimization.hold(self.table, partition, rng.randrange(1, 2 * TTL_MS), "a user says so")
                self._held_until_ms[partition] = hold.until_ms
            case "release":
                self._release(optimization)
            case "pause":
                optimization.pause(self.table, "")
                self._paused = True
            case _:
                optimization.resume(self.table)
                self._paused = False

    def let_go(self, optimization: Optimization) -> None:
        """Nobody holds anything any more."""
        self._release(optimization)
        optimization.resume(self.table)
        self._paused = False

    def _release(self, optimization: Optimization) -> None:
        for partition in self._held_until_ms:
            optimization.release(self.table, partition)
        self._held_until_ms.clear()

    def _append(self, rng: random.Random) -> None:
        began_ms = self.lake.clock.ms
        instant = self.lake.open(self.table)
        hours = {hour_of(began_ms - rng.randrange(2 * TTL_MS)) for _ in range(rng.randrange(1, 3))}
        made = {f"{instant}/h={hour}/g{instant}/a.parquet": Made(hour, ROWS, began_ms) for hour in sorted(hours)}
        given = [
            DataFile(path=path, size_bytes=100, row_count=ROWS, partition=[Value(text=one.hour)])
            for path, one in made.items()
        ]
        self._now(self.lake.commit(self.table, instant, given).version, self.files | made)

    def _restore(self, version: int) -> None:
        restored = self.lake.timeline.restore(self.table, version)
        self._quiet_until_ms = max(self._quiet_until_ms, self.lake.clock.ms + NOTICE_MS)
        now_ms = self.lake.clock.ms  # the partitions count as changed now
        files = {
            path: Made(one.hour, one.rows, max(one.made_ms, now_ms)) for path, one in self._states[version].items()
        }
        self._now(restored.version, files)

    def merged(self, version: int, added: DataFile, removed: tuple[str, ...], planned_ms: int) -> None:
        """A worker has committed."""
        hour = added.partition[0].text
        kept = {path: one for path, one in self.files.items() if path not in removed}
        self._now(version, kept | {added.path: Made(hour, added.row_count, planned_ms)})

    def _partitions(self) -> list[str]:
        return sorted({f"h={one.hour}" for one in self.files.values()})

    def _now(self, version: int, files: dict[str, Made]) -> None:
        self.version, self.files = version, files
        self._states[version] = files

    def observe(self) -> None:
        """Right after the planner has acted: what is gone was old enough, and nobody had asked to keep it."""
        paths = set(self.lake.paths(self.table))
        gone = self.files.keys() - paths
        assert paths <= self.files.keys(), "files that nobody has written"
        if not gone:
            return
        now_ms = self.lake.clock.ms
        assert not self._paused
        assert now_ms >= self._quiet_until_ms, "without notice"
        assert self._held_until_ms.get(WHOLE_TABLE, 0) <= now_ms, "the table is held"
        for hour in {self.files[path].hour for path in gone}:
            whole = {path: one for path, one in self.files.items() if one.hour == hour}
            assert whole.keys() <= gone, "a part of a partition"
            old_ms = end_of(hour) if self.by_hour else max(one.made_ms for one in whole.values())
            assert old_ms + TTL_MS <= now_ms, "too early"
            assert self._held_until_ms.get(f"h={hour}", 0) <= now_ms, "the partition is held"
            self.departed += 1
        left = {path: one for path, one in self.files.items() if path not in gone}
        latest = self.lake.snapshots.snapshot("", "default", self.table.record.name, SnapshotReference())
        self._now(latest.snapshot.version, left)


def hour_of(ms: int) -> str:
    """Its name, such as 2027011508."""
    return dt.datetime.fromtimestamp(ms / 1_000, dt.UTC).strftime("%Y%m%d%H")


def end_of(hour: str) -> int:
    """In milliseconds since 1970."""
    return int(dt.datetime.strptime(hour + "+0000", "%Y%m%d%H%z").timestamp() + 3_600) * 1_000


class Growing:
    """A table with an extendible index, whose buckets are split as they grow. Its files stay as they are."""

    def __init__(self, lake: Lake, name: str, group: str) -> None:
        self.lake = lake
        record = LakeTableRecord(
            database="default",
            name=name,
            properties={
                GROUP_PROPERTY: group,
                "lakemark.primary-key": "id,m",
                "lakemark.bucket.index": "extendible",
                "lakemark.bucket.count": "1",
                "lakemark.write.mode": "merge-on-read",
                "lakemark.bucket.split-size-bytes": str(SPLIT_BYTES),
                "lakemark.conflict.policy": "file_group",
            },
        )
        self.table = lake.catalog.create_lake_table(record, SCHEMA)
        self.files: dict[str, Bucketed] = {}
        self.splits = self.refused = 0
        self._seen = self._leaves()

    @property
    def rows(self) -> int:
        """How many the latest version has."""
        return sum(one.rows for one in self.files.values())

    def act(self, rng: random.Random) -> None:
        """A bucket gets a larger base file; or a file that spans several is written again, a file a bucket."""
        leaves = self._leaves()
        leaf, month = rng.choice(sorted(leaves)), rng.randrange(MONTHS)
        older = {path: one for path, one in self.files.items() if one.month == month}
        spanning = [path for path, one in older.items() if one.bucket in above(leaf)[1:]]
        try:
            if spanning:
                self._rewrite(*spanning, leaves)
            else:
                self._grow(leaf, month, [path for path, one in older.items() if one.bucket == leaf], rng)
        except CommitConflict:  # a split was first
            self.refused += 1

    def _grow(self, bucket: int, month: int, older: list[str], rng: random.Random) -> None:
        instant = self.lake.open(self.table, t.UPSERT)
        path = f"{instant}/m={month}/{group_name(bucket)}/a.parquet"
        size = rng.randrange(SPLIT_BYTES // 2) + sum(self.files[one].size for one in older)
        rows = ROWS + sum(self.files[one].rows for one in older)
        self._commit(instant, {path: Bucketed(month, bucket, size, rows)}, *older)

    def _rewrite(self, path: str, leaves: frozenset[int]) -> None:
        old = self.files[path]
        below = [leaf for leaf in leaves if old.bucket in above(leaf)[1:]]
        instant = self.lake.open(self.table, t.COMPACT)
        made = {
            f"{instant}/m={old.month}/{group_name(leaf)}/a.parquet": Bucketed(
                old.month, leaf, old.size // len(below), old.rows if leaf == below[0] else 0
            )
            for leaf in below
        }
        self._commit(instant, made, path)

    def _commit(self, instant: int, made: dict[str, Bucketed], *removed: str) -> None:
        given = [
            DataFile(
                path=path,
                size_bytes=one.size,
                row_count=one.rows,
                partition=[Value(integer=one.month)],
                bucket=one.bucket,
                file_group=group_name(one.bucket),
            )
            for path, one in made.items()
        ]
        self.lake.timeline.commit(self.table, CommitDraft(instant, files(*given), removed=removed))
        self.files = {path: one for path, one in self.files.items() if path not in removed} | made

    def observe(self) -> None:
        """Right after the planner has acted: files are as they were, and only buckets that were too large are split."""
        assert set(self.lake.paths(self.table)) == self.files.keys()
        leaves = self._leaves()
        for bucket in self._seen - leaves:
            assert self._seen.isdisjoint(above(bucket)[1:])
            assert any(size > SPLIT_BYTES for size in self._sizes(bucket)), "split for nothing"
            self.splits += 1
        self._seen = leaves

    def too_large(self) -> list[str]:
        """The buckets that should have been split."""
        return [
            group_name(leaf)
            for leaf in self._leaves()
            if any(size > SPLIT_BYTES for size in self._sizes(leaf))
            and not any(one.bucket in above(leaf)[1:] for one in self.files.values())
        ]

    def _sizes(self, bucket: int) -> list[int]:
        """By partition."""
        sizes: Counter[int] = Counter()
        for one in self.files.values():
            if one.bucket == bucket:
                sizes[one.month] += one.size
        return list(sizes.values())

    def _leaves(self) -> frozenset[int]:
        loaded = self.lake.store.read(lambda tx: lake_tables.load(tx, self.table.table_id))
        assert loaded.kind.directory is not None
        return loaded.kind.directory.leaves
