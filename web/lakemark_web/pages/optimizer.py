"""What the optimizer does, and why: with one table, and with its groups and workers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lakemark_core.errors import InvalidArgument
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_server.optimization.service import PARTITIONS_TOLD
from lakemark_web import texts
from lakemark_web.domains import Domains
from lakemark_web.pages.group_actions import ORDERS
from lakemark_web.pages.table import TableRequest, frame

PARTITIONS_SHOWN: Final = 50
RUNS_SHOWN: Final = 25
TASKS_SHOWN: Final = 100
HOLDS_SHOWN: Final = 100
GROUPS_SHOWN: Final = 200
WORKERS_SHOWN: Final = 500
SOON_S, LATER_S = 1, 10
"""When an open page asks again: while something goes on; else. The log of events tells of commits, not of plans."""

REST: Final = 10
"""An open page waits at least so many times as long as it took to find the reasons, which is long for many files."""

_GOING_ON: Final = frozenset({pb.PENDING, pb.PLANNED, pb.RUNNING})
_GOOD: Final = frozenset({pb.TASK_DONE, pb.TASK_NOTHING})
_BAD: Final = frozenset({pb.TASK_FAILED, pb.TASK_LOST})
_TEXT_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class OptimizerRequest:
    """Which part of a table. ``partition`` "": all; ``offset``: partitions before the page; ``before``: of runs."""

    partition: str = ""
    offset: int = 0
    before: str = ""


class PartitionRow(NamedTuple):
    """A partition of the list. ``wanted``: what kind of run, "" for none; ``figures``: what was counted, in words."""

    name: str
    state: str
    style: str
    reason: str
    change: str
    next_ms: int
    wanted: str
    figures: str
    last_run_ms: int
    last_error: str


class TaskRow(NamedTuple):
    """A task, open or ended. ``size`` and ``files``: before and after; ``since_ms``: when it came to its state."""

    table: tuple[str, str, str]
    instant: int
    partition: str
    kind: str
    state: str
    style: str
    since_ms: int
    worked_ms: int
    worker: str
    executor: str
    files: str
    size: str
    reason: str
    message: str
    version: int


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS else text[:_TEXT_CHARS] + "…"


def _style(state: pb.OptimizationState.ValueType) -> str:
    if state in (pb.STOPPED, pb.BACKING_OFF):
        return "bad"
    return "warn" if state in (pb.HELD, pb.PAUSED) else "good" if state in (pb.RUNNING, pb.PLANNED) else ""


def _state(state: pb.OptimizationState.ValueType) -> str:
    return texts.words(pb.OptimizationState.Name(state))


def partition_row(one: pb.PartitionOptimization) -> PartitionRow:
    """A partition in words."""
    figures = [texts.counted(one.files, "file"), texts.size(one.bytes)]
    if one.fragments or one.segments:
        figures.append(f"{texts.counted(one.fragments, 'fragment')}, {texts.counted(one.segments, 'segment')}")
    if one.deltas:
        figures.append(f"{texts.counted(one.deltas, 'delta')} of {texts.counted(one.delta_commits, 'commit')}")
    return PartitionRow(
        one.partition,
        _state(one.state),
        _style(one.state),
        _cut(one.reason),
        _cut(one.change),
        one.next_ms,
        texts.words(pb.OptimizationKind.Name(one.kind)) if one.kind else "",
        ", ".join(figures),
        one.last_run_ms,
        _cut(f"{texts.counted(one.failures, 'failure')} in a row: {one.last_error}") if one.failures else "",
    )


def task_row(task: pb.OptimizationTask, now_ms: int) -> TaskRow:
    """A task in words."""
    ended, name = task.ended_ms, task.table
    committed = task.state == pb.TASK_DONE
    begun = task.acknowledged_ms or task.assigned_ms
    files, size = texts.count(task.files), texts.size(task.bytes)
    if committed:
        files = f"{texts.count(task.files_before)} → {texts.count(task.files_after)}"
        size = f"{texts.size(task.bytes_before)} → {texts.size(task.bytes_after)}"
    style = "good" if task.state in _GOOD else "bad" if task.state in _BAD else "warn" if ended else ""
    return TaskRow(
        (name.catalog, name.database, name.table),
        task.instant,
        task.partition,
        texts.words(pb.OptimizationKind.Name(task.kind)),
        texts.words(pb.TaskState.Name(task.state)).removeprefix("task "),
        style,
        ended or begun or task.planned_ms,
        max(0, (ended or now_ms) - begun) if begun else 0,
        task.worker,
        task.executor,
        files,
        size,
        _cut(task.reason),
        _cut(task.message),
        task.version,
    )


def in_order(tasks: Iterable[pb.OptimizationTask]) -> list[pb.OptimizationTask]:
    """Those that run, then those that wait; the oldest first."""
    return sorted(tasks, key=lambda one: (one.state == pb.TASK_WAITING, one.planned_ms))


def table(domains: Domains, asked: TableRequest, part: OptimizerRequest) -> dict[str, Any]:
    """The table's state, the reason for each partition, what runs, and what ran.

    Raises what ``frame`` raises, InvalidArgument, NotFound for a partition without files.
    """
    given = frame(domains, asked)
    lake_table = given["table"]
    offset = min(part.offset, PARTITIONS_TOLD - PARTITIONS_SHOWN)
    care, problem, begun_s = None, "", time.monotonic()
    try:
        care = domains.optimization.explain(lake_table, part.partition or None, offset + PARTITIONS_SHOWN)
    except InvalidArgument as error:  # properties that an earlier release accepted
        problem = error.message
    took_s = time.monotonic() - begun_s
    now_ms = domains.clock()
    page = domains.optimization.runs(lake_table, run_place(part.before, 2), RUNS_SHOWN)
    shown: Sequence[pb.PartitionOptimization] = []
    tasks: Sequence[pb.OptimizationTask] = []
    if care is not None:
        shown = care.partition_states if part.partition else care.partition_states[offset:]
        tasks = in_order(care.tasks)
    going_on = care is not None and (bool(tasks) or care.state in _GOING_ON)
    following = 0
    if care is not None and not part.partition and offset + PARTITIONS_SHOWN < care.partitions:
        following = offset + PARTITIONS_SHOWN
    return given | {
        "care": care,
        "problem": problem,
        "state": _state(care.state) if care else "",
        "style": _style(care.state) if care else "",
        "partition": part.partition,
        "partitions": [partition_row(one) for one in shown],
        "offset": offset,
        "following": following if following < PARTITIONS_TOLD else 0,
        "told_max": PARTITIONS_TOLD,
        "tasks": [task_row(one, now_ms) for one in tasks[:TASKS_SHOWN]],
        "tasks_left_out": max(0, len(tasks) - TASKS_SHOWN),
        "holds": list(care.holds)[:HOLDS_SHOWN] if care else [],
        "holds_left_out": max(0, len(care.holds) - HOLDS_SHOWN) if care else 0,
        "policy_in_force": sorted(care.policy.items()) if care else [],
        "runs": [task_row(one, now_ms) for one in page.runs],
        "before": part.before,
        "older": _place_text(page.following),
        "again_s": max(SOON_S if going_on else LATER_S, round(took_s * REST)),
    }


def groups(domains: Domains, before: str) -> dict[str, Any]:
    """All groups with their workers, and the runs of all tables. Raises InvalidArgument."""
    known, leader = domains.optimization.groups()
    tasks = in_order(domains.optimization.open_tasks())
    workers = [one for group in known for one in group.workers]
    page = domains.optimization.runs(None, run_place(before, 3), RUNS_SHOWN)
    now_ms = domains.clock()
    return {
        "leader": leader,
        "orders": list(ORDERS),
        "groups": [(one, texts.words(pb.GroupOrder.Name(one.order)), len(one.workers)) for one in known[:GROUPS_SHOWN]],
        "groups_left_out": max(0, len(known) - GROUPS_SHOWN),
        "tasks": [task_row(one, now_ms) for one in tasks[:TASKS_SHOWN]],
        "tasks_left_out": max(0, len(tasks) - TASKS_SHOWN),
        "workers": workers[:WORKERS_SHOWN],
        "workers_left_out": max(0, len(workers) - WORKERS_SHOWN),
        "runs": [task_row(one, now_ms) for one in page.runs],
        "before": before,
        "older": _place_text(page.following),
        "again_s": SOON_S if any(one.running for one in known) else LATER_S,
    }


def run_place(text: str, parts: int) -> tuple[int, ...] | None:
    """Where a page of runs begins, in an address: numbers with points; "": at the newest. Raises InvalidArgument."""
    if not text:
        return None
    numbers = text[:100].split(".")
    if len(numbers) != parts or not all(one.isascii() and one.isdigit() and len(one) < 19 for one in numbers):
        raise InvalidArgument(f"{text[:50]!r} is no place among the runs: begin with the newest ones")
    return tuple(int(one) for one in numbers)


def _place_text(place: tuple[int, ...] | None) -> str:
    return "" if place is None else ".".join(map(str, place))
