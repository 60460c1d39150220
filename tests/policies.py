"""A table with rows, for tests of conflict policies: what writers do to rows through files, and what they should do.

A row is not a value but its history: for each column the numbers of the writers that changed it, each of which had read
the earlier ones. So a lost change is missing from a history. Under the policy ``row`` a row is the greatest of what was
written: (event time, number of the writer, whether it exists).

Keys are (month, bucket, index). The bucket decides the file group, as with a bucket index. Rows without a key are in
groups of their own, and have a tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.timeline.conflicts.changes import Operation

Key: TypeAlias = tuple[int, int, int]
Place: TypeAlias = tuple[int, str]  # month, file group
Row: TypeAlias = Any
Rows: TypeAlias = dict[Key, Row]

MONTHS, BUCKETS, INDEXES = range(2), range(2), range(2)
KEYS = [(month, bucket, index) for month in MONTHS for bucket in BUCKETS for index in INDEXES]
COLUMNS = {"a": 2, "b": 3}  # ids of tests.lakes.SCHEMA
FINER = {"file_group", "file", "column", "row"}


@dataclass(frozen=True)
class Content:
    """The content of one data file. ``rows``: in a delta None deletes. ``logs``: tags by row number."""

    month: int
    group: str
    rows: Rows = field(default_factory=dict)
    logs: dict[int, int] = field(default_factory=dict)
    delta: bool = False
    base_instant: int = 0

    @property
    def place(self) -> Place:
        return self.month, self.group

    def as_file(self, instant: int) -> p.DataFile:
        return p.DataFile(
            path=f"{instant}/m={self.month}/{self.group}/a.parquet",
            row_count=1,
            size_bytes=1,
            file_group=self.group,
            partition=[p.Value(integer=self.month)],
            kind=p.DELTA if self.delta else p.BASE,
            base_instant=self.base_instant,
        )


@dataclass(frozen=True)
class State:
    """What a reader sees: rows by key, and (month, tag) of rows without a key."""

    rows: Rows = field(default_factory=dict)
    logs: dict[int, tuple[int, int]] = field(default_factory=dict)


def laid_on(policy: str, rows: Rows, newer: Rows) -> Rows:
    """Rows after changes, which are merged by column or by event time."""
    merged = dict(rows)
    for key, row in newer.items():
        if policy == "row":
            merged[key] = max(row, merged[key]) if key in merged else row
        elif row is None:
            merged.pop(key, None)
        else:
            merged[key] = merged.get(key, {}) | row
    return merged


class View:
    """The slices of one version, as the service lists them: the path and the content of each file."""

    def __init__(self, policy: str, slices: Mapping[Place, list[tuple[str, Content]]]) -> None:
        self.policy = policy
        self.slices = slices
        for place, files in slices.items():
            kinds = [content.delta for _, content in files]
            assert kinds.count(False) <= 1, f"{place} has two base files"
            assert kinds == sorted(kinds), f"{place}: the base comes first"

    def group_of(self, month: int, bucket: int) -> str:
        """The file group of a bucket; if it has none yet, the name of its first one."""
        names = {group for at, group in self.slices if at == month and group.startswith(f"b{bucket}")}
        assert len(names) <= 1, f"bucket {bucket} of month {month} has the groups {names}"
        return names.pop() if names else f"b{bucket}"

    def rows(self, place: Place) -> Rows:
        merged: Rows = {}
        for _, content in self.slices.get(place, ()):
            merged = laid_on(self.policy, merged, content.rows) if content.delta else dict(content.rows)
        return merged

    def logs(self, place: Place) -> dict[int, int]:
        return {number: tag for _, content in self.slices.get(place, ()) for number, tag in content.logs.items()}

    def paths(self, place: Place) -> list[str]:
        return [path for path, _ in self.slices.get(place, ())]

    def base_instant(self, place: Place) -> int:
        return next((int(path.split("/")[0]) for path, one in self.slices.get(place, ()) if not one.delta), 0)

    def state(self) -> State:
        rows: Rows = {}
        logs: dict[int, tuple[int, int]] = {}
        for place in self.slices:
            rows |= self.rows(place)
            logs |= {number: (place[0], tag) for number, tag in self.logs(place).items()}
        return State(rows, logs)


@dataclass(frozen=True)
class Work:
    """What a writer wants to do. ``months`` None: wherever its rows are."""

    operation: Operation
    keys: frozenset[Key]
    columns: frozenset[str] = frozenset()  # columns of an upsert; none: whole rows
    months: frozenset[int] | None = None
    rewrites: bool = False  # rewrites files instead of adding deltas
    tag: int = 0
    index: int = 0  # index of the rows that an overwrite by predicate replaces
    by_tag: bool = False  # deletes rows without a key
    event_time: int = 0


@dataclass
class Plan:
    """The files that do the work, planned from the version that the writer read."""

    added: list[Content] = field(default_factory=list)
    removed: list[tuple[Place, str]] = field(default_factory=list)
    seen_logs: frozenset[int] = frozenset()  # tagged rows that it deletes
    places: frozenset[tuple[int, int]] = frozenset()  # (month, bucket) that an overwrite by predicate rewrites

    def rewrite(self, view: View, content: Content) -> None:
        self.removed += [(content.place, path) for path in view.paths(content.place)]
        self.added.append(content)


class Writer:
    """One instant: its work, and the rules of what it does to rows."""

    def __init__(self, number: int, policy: str, work: Work) -> None:
        self.number, self.policy, self.work = number, policy, work

    # -- through files ------------------------------------------------------------------------------------------------

    def plan(self, view: View, instant: int) -> Plan:
        work, plan = self.work, Plan()
        match work.operation:
            case t.APPEND:
                plan.added = [Content(min(work.keys)[0], f"l{self.number}", logs={self.number: work.tag})]
            case t.DELETE if work.by_tag:
                self._delete_by_tag(view, plan)
            case t.UPSERT | t.DELETE:
                for place, keys in self._by_place(view, work.keys):
                    self._change(view, plan, place, keys)
            case t.OVERWRITE_PREDICATE:
                self._overwrite_by_predicate(view, plan)
            case t.OVERWRITE_PARTITIONS | t.OVERWRITE_TABLE:
                for month in MONTHS:
                    for bucket in BUCKETS:
                        rows = {key: self._new() for key in self._replacing() if key[:2] == (month, bucket)}
                        if rows:
                            plan.added.append(Content(month, f"b{bucket}", rows))
            case t.COMPACT:
                for place in self._somewhere(view):
                    plan.rewrite(view, Content(*place, view.rows(place), view.logs(place)))
            case t.CLUSTER:
                self._cluster(view, plan, instant)
        return plan

    def _by_place(self, view: View, keys: Iterable[Key]) -> Iterator[tuple[Place, list[Key]]]:
        for month, bucket in sorted({key[:2] for key in keys}):
            yield (month, view.group_of(month, bucket)), [key for key in keys if key[:2] == (month, bucket)]

    def _change(self, view: View, plan: Plan, place: Place, keys: list[Key]) -> None:
        rows = view.rows(place)
        changed = self.changed(rows, keys)
        if self.work.rewrites:
            plan.rewrite(view, Content(*place, laid_on(self.policy, rows, changed)))
        else:
            plan.added.append(Content(*place, changed, delta=True, base_instant=view.base_instant(place)))

    def _delete_by_tag(self, view: View, plan: Plan) -> None:
        for place in view.slices:
            logs = view.logs(place)
            gone = {number for number, tag in logs.items() if tag == self.work.tag}
            if gone and place[0] in self.scope:
                plan.removed += [(place, path) for path in view.paths(place)]
                plan.seen_logs |= gone
                if len(gone) < len(logs):
                    kept = {number: tag for number, tag in logs.items() if number not in gone}
                    plan.added.append(Content(*place, logs=kept))

    def _overwrite_by_predicate(self, view: View, plan: Plan) -> None:
        found = [key for key in view.state().rows if self._selected(key)]
        for place, _ in self._by_place(view, sorted({*found, *self._replacing()})):
            kept = {key: row for key, row in view.rows(place).items() if not self._selected(key)}
            fresh = {
                key: self._new()
                for key in self._replacing()
                if view.group_of(*key[:2]) == place[1] and key[0] == place[0]
            }
            plan.rewrite(view, Content(*place, kept | fresh))
        plan.places = frozenset(key[:2] for key in (*found, *self._replacing()))

    def _somewhere(self, view: View) -> list[Place]:
        """Slices for a table service: those of the buckets of the keys, and of rows without a key."""
        buckets = {(key[0], f"b{key[1]}") for key in self.work.keys}
        logs = [place for place in view.slices if place[1].startswith("l") and self.work.by_tag]
        return [place for place in view.slices if (place[0], place[1][:2]) in buckets] + logs

    def _cluster(self, view: View, plan: Plan, instant: int) -> None:
        """Rewrites files into new file groups. Rows without a key of one month come together."""
        made: dict[Place, Content] = {}
        for place in self._somewhere(view):
            plan.removed += [(place, path) for path in view.paths(place)]
            month, group = place
            name = f"l-{instant}" if group.startswith("l") else f"{group[:2]}-{instant}"
            into = made.setdefault((month, name), Content(month, name))
            into.rows.update(view.rows(place))
            into.logs.update(view.logs(place))
        plan.added += made.values()

    # -- by first principles ------------------------------------------------------------------------------------------

    @property
    def scope(self) -> frozenset[int]:
        return frozenset(MONTHS) if self.work.months is None else self.work.months

    def changed(self, rows: Rows, keys: Iterable[Key]) -> Rows:
        """What an upsert or delete makes of the existing rows."""
        work = self.work
        if self.policy == "row":
            return dict.fromkeys(keys, (work.event_time, self.number, work.operation == t.UPSERT))
        if work.operation == t.DELETE:
            return dict.fromkeys(keys)
        columns = work.columns or COLUMNS
        return {key: {one: rows.get(key, {}).get(one, frozenset()) | {self.number} for one in columns} for key in keys}

    def _new(self) -> Row:
        if self.policy == "row":
            return (self.work.event_time, self.number, True)
        return dict.fromkeys(COLUMNS, frozenset({self.number}))

    def _replacing(self) -> list[Key]:
        """The keys of the rows that an overwrite writes."""
        everywhere = self.work.operation == t.OVERWRITE_TABLE
        by_predicate = self.work.operation == t.OVERWRITE_PREDICATE
        return sorted(
            key
            for key in self.work.keys
            if (everywhere or key[0] in self.scope) and (not by_predicate or key[2] == self.work.index)
        )

    def _selected(self, key: Key) -> bool:
        return key[2] == self.work.index and key[0] in self.scope

    def run(self, state: State, plan: Plan) -> State:
        """The state after this work, as if it ran alone on the state at the time when it is published.

        Below the level of partitions a delete and an overwrite by predicate promise less: they change all that they
        have read, which is in ``plan``. Rows that others put elsewhere meanwhile count as later.
        """
        work, rows, logs = self.work, dict(state.rows), dict(state.logs)
        finer = self.policy in FINER
        match work.operation:
            case t.APPEND:
                logs[self.number] = (min(work.keys)[0], work.tag)
            case t.DELETE if work.by_tag:
                gone = {one for one, (month, tag) in logs.items() if month in self.scope and tag == work.tag}
                logs = {one: log for one, log in logs.items() if one not in (plan.seen_logs if finer else gone)}
            case t.UPSERT | t.DELETE:
                rows = laid_on(self.policy, rows, self.changed(rows, work.keys))
            case t.OVERWRITE_PREDICATE:
                kept = [key for key in rows if not self._selected(key) or (finer and key[:2] not in plan.places)]
                rows = {key: rows[key] for key in kept} | {key: self._new() for key in self._replacing()}
            case t.OVERWRITE_PARTITIONS | t.OVERWRITE_TABLE:
                gone_months = set(MONTHS) if work.operation == t.OVERWRITE_TABLE else self.scope
                rows = {key: row for key, row in rows.items() if key[0] not in gone_months}
                rows |= {key: self._new() for key in self._replacing()}
                logs = {one: log for one, log in logs.items() if log[0] not in gone_months}
        return State(rows, logs)
