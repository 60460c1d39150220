"""The overview: all tables of a catalog, what was committed lately, and what needs a person."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lakemark_core.errors import NotFound
from lakemark_proto.v1 import catalog_pb2
from lakemark_proto.v1.optimization_pb2 import TASK_DONE, TASK_FAILED, TASK_LOST
from lakemark_server.catalog.search import BEGINNING, TablePlace
from lakemark_server.timeline.instants import alive
from lakemark_web import texts
from lakemark_web.addresses import page_path
from lakemark_web.domains import Domains
from lakemark_web.survey import RECENT_MAX, RECENT_MS, CatalogSurvey, CommitSeen, SurveyedTable, Surveys

PAGE_TABLES: Final = 50
SORTED_MAX: Final = 10_000
"""Tables of a list that is not in the order of names."""

MOUNTS_SHOWN: Final = 20
RUNS_MAX: Final = 200
"""Of the last hour that are counted."""

SORTS: Final = {"name": "name", "health": "worst health first", "size": "largest first", "commit": "last commit first"}
HEALTHY_MIN: Final = 70
"""A score from which on a table needs nobody."""

_BARS: Final = 12
_SHARES: Final = 5
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class OverviewRequest:
    """What is asked for. ``after``: the place behind which the page begins, in order of name; ``offset``: in others."""

    catalog: str
    text: str = ""
    sort: str = "name"
    after: TablePlace = BEGINNING
    offset: int = 0


class TableRow(NamedTuple):
    """A table of the list. ``state`` None: it was not looked at yet."""

    place: TablePlace
    is_lake: bool
    state: SurveyedTable | None
    commits: int


class Matter(NamedTuple):
    """Something that needs a person. ``link``: where more is told; "": nowhere."""

    text: str
    link: str = ""


def view(domains: Domains, surveys: Surveys, asked: OverviewRequest) -> dict[str, Any]:
    """What the template shows. Raises NotFound for the catalog."""
    catalogs = domains.catalog.list_catalogs()
    if asked.catalog not in catalogs:
        raise NotFound(f"there is no catalog {asked.catalog!r}; there are {', '.join(catalogs[:10])}")
    survey = surveys.of(asked.catalog)
    commits = survey.commits()
    by_table = Counter(commit.table_id for commit in commits)
    rows, following = _rows(domains, survey, asked, by_table)
    cut = following.get("offset") == SORTED_MAX
    mounts = domains.mounts.list(asked.catalog)
    states = survey.states()
    usage = domains.catalog.quotas.get(asked.catalog).usage
    return {
        "catalogs": catalogs,
        "asked": asked,
        "sorts": SORTS,
        "rows": rows,
        "following": {} if cut else following,
        "tables": usage.tables,
        "databases": usage.databases,
        "files": sum(state.totals.files for state in states if state.totals),
        "size_bytes": sum(state.totals.size_bytes for state in states if state.totals),
        "looked_at": len(states),
        "looking": not survey.whole,
        "left_out": survey.left_out,
        "recent": _recent(commits, domains.clock()),
        "optimizer": _optimizer(domains),
        "matters": _matters(domains, survey, states, asked.catalog),
        "healthy_min": HEALTHY_MIN,
        "mounts": mounts[:MOUNTS_SHOWN],
        "mounts_left_out": max(0, len(mounts) - MOUNTS_SHOWN),
        "sorted_max": SORTED_MAX if cut else 0,
    }


def _rows(
    domains: Domains, survey: CatalogSurvey, asked: OverviewRequest, by_table: Counter[int]
) -> tuple[list[TableRow], dict[str, str | int]]:
    """The tables of the page, and what to ask for to get the next one (nothing: it was the last)."""
    if asked.sort == "name":
        listed = domains.catalog.find_tables(asked.catalog, asked.text, asked.after, limit=PAGE_TABLES)
        rows = [
            TableRow(place, entry.kind == catalog_pb2.LAKE, survey.find(entry.table_id), by_table[entry.table_id])
            for place, entry in listed.tables
        ]
        return rows, {} if listed.behind is None else {"after": ".".join(listed.behind)}
    wanted = asked.text.strip().lower()
    states = [state for state in survey.states() if not wanted or wanted in ".".join(state.place)]
    offset = min(asked.offset, SORTED_MAX - PAGE_TABLES)
    upto = offset + PAGE_TABLES
    best = heapq.nsmallest(upto + 1, states, key=lambda state: (_rank(state, asked.sort), state.place))
    rows = [TableRow(state.place, state.is_lake, state, by_table[state.table_id]) for state in best[offset:upto]]
    return rows, {"offset": upto} if len(best) > upto else {}


def _rank(state: SurveyedTable, sort: str) -> float:
    if sort == "commit":
        return -state.committed_ms
    if state.totals is None:
        return 1 if sort == "size" else 101
    return -state.totals.size_bytes if sort == "size" else state.totals.score


def _recent(commits: Sequence[CommitSeen], now_ms: int) -> dict[str, Any]:
    """Commits of the last hour: how many in each five minutes, by whom, and where."""
    width = RECENT_MS // _BARS
    begin = now_ms - RECENT_MS
    per_bar = Counter(min(max(0, (commit.time_ms - begin) // width), _BARS - 1) for commit in commits)
    bars = [per_bar[at] for at in range(_BARS)]
    by, tables = Counter(commit.by for commit in commits), Counter(commit.place for commit in commits)
    return {
        "commits": len(commits),
        "more": len(commits) >= RECENT_MAX,
        "files": sum(commit.files for commit in commits),
        "rows": sum(commit.rows for commit in commits),
        "bars": bars,
        "highest": max(bars),
        "by": by.most_common(_SHARES),
        "more_by": max(0, len(by) - _SHARES),
        "tables": tables.most_common(_SHARES),
        "more_tables": max(0, len(tables) - _SHARES),
    }


def _optimizer(domains: Domains) -> dict[str, Any]:
    """Tasks that run and wait, and what ended in the last hour, of all catalogs: workers do not tell them apart."""
    groups, _ = domains.optimization.groups()
    since_ms = domains.clock() - RECENT_MS
    newest = domains.optimization.runs(None, None, RUNS_MAX).runs
    ended = [task for task in newest if task.ended_ms >= since_ms]
    done = [task for task in ended if task.state == TASK_DONE]
    return {
        "running": sum(group.running for group in groups),
        "waiting": sum(group.waiting for group in groups),
        "ended": len(ended),
        "more": len(ended) == RUNS_MAX,
        "failed": sum(task.state in (TASK_FAILED, TASK_LOST) for task in ended),
        "saved": sum(task.files_before - task.files_after for task in done),
    }


def _matters(domains: Domains, survey: CatalogSurvey, states: Sequence[SurveyedTable], catalog: str) -> list[Matter]:
    service, sinks = page_path("/service", catalog, "instants"), page_path("/service", catalog, "sinks")
    matters = [Matter(one.text, one.link) for one in survey.optimizer.matters()]
    matters += _files(states, catalog) + _problems(states)
    open_now, more = domains.timeline.open_instants()
    now_ms = domains.clock()
    lost = sum(one.expired(now_ms) for _, one in open_now)
    if lost:
        at_least = "at least " if more else ""
        writers = texts.counted(lost, "writer")
        verb = "has" if lost == 1 else "have"
        matters.append(Matter(f"{at_least}{writers} {verb} gone silent with an open instant", service))
    if more:
        matters.append(Matter(f"{alive.PAGE_MAX:,} instants or more are open", service))
    refused = survey.refused()
    if refused:
        link = page_path("/events", catalog, kind="rolled-back")
        matters.append(Matter(f"{texts.counted(len(refused), 'instant')} rolled back in the last hour", link))
    early = domains.timeline.refusals.newest(since_ms=now_ms - RECENT_MS)
    if early:
        link = page_path("/events", catalog, "refused")
        matters.append(Matter(f"{texts.counted(len(early), 'writer')} refused at the start in the last hour", link))
    for sink in domains.sinks.list(catalog):
        if sink.progress.failing_since_ms or sink.letters:
            trouble = f"fails since {texts.ago(sink.progress.failing_since_ms, now_ms)}: {sink.progress.last_error}"
            letters = f"{texts.counted(sink.letters, 'dead letter')}" if sink.letters else ""
            said = "; ".join(filter(None, (trouble if sink.progress.failing_since_ms else "", letters)))
            matters.append(Matter(f"sink {sink.record.name} {said}", sinks))
    for listener in domains.listeners.list(catalog):
        if listener.state.failing_since_ms:
            matters.append(Matter(f"listener {listener.name} fails: {listener.state.last_error}", sinks))
    return matters


def _files(states: Sequence[SurveyedTable], catalog: str) -> list[Matter]:
    ill = [state for state in states if state.totals is not None and state.totals.score < HEALTHY_MIN]
    if not ill:
        return []
    worst = heapq.nsmallest(_NAMED, ill, key=lambda state: (state.totals.score if state.totals else 0, state.place))
    names = ", ".join(".".join(state.place) for state in worst)
    more = f" and {len(ill) - _NAMED:,} more" if len(ill) > _NAMED else ""
    verb = "suffers" if len(ill) == 1 else "suffer"
    text = f"{texts.counted(len(ill), 'table')} {verb} from small or delta files: {names}{more}"
    return [Matter(text, page_path("/", catalog, sort="health"))]


def _problems(states: Sequence[SurveyedTable]) -> list[Matter]:
    return [Matter(f"{'.'.join(state.place)} cannot be read: {state.problem}") for state in states if state.problem][
        :_NAMED
    ]
