"""Answers about optimization as JSON, for programs (docs/management.md). Only GET: nothing can be changed here."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakemark_core.errors import InvalidArgument
from lakemark_core.messages.optimization import plain
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.catalog.names import catalog_name
from lakemark_web.domains import Domains
from lakemark_web.pages import moments

PREFIX: Final = "/api/"
PAGE_DEFAULT, PAGE_MAX = 100, 1_000
NUMBERS_OF_PLACE: Final = 3

View = Callable[[Request], Response]


class OptimizationApi:
    """``paged`` runs a view in a thread, as pages are run."""

    def __init__(self, domains: Domains, paged: Callable[[View], Callable[[Request], Any]]) -> None:
        self._domains, self._paged = domains, paged

    def routes(self) -> list[Route]:
        """All addresses."""
        table = f"{PREFIX}tables/{{catalog}}/{{database}}/{{table}}/optimization"
        views = {
            f"{PREFIX}optimization/tables": self._tables,
            f"{PREFIX}optimization/groups": self._groups,
            f"{PREFIX}optimization/history": self._history,
            table: self._why,
            f"{table}/history": self._table_history,
        }
        return [Route(path, self._paged(view)) for path, view in views.items()]

    def _tables(self, request: Request) -> Response:
        given = request.query_params
        states = [_state(word) for word in given.getlist("state")]
        after = moments.whole("after", given.get("after") or "0")
        catalog = catalog_name(given.get("catalog", ""))
        tables, following, leader = self._domains.optimization.tables(
            catalog, after, _limit(request), given.get("group", ""), states
        )
        return _json({"tables": [plain(one) for one in tables], "after": following, "leader": leader})

    def _groups(self, request: Request) -> Response:
        groups, leader = self._domains.optimization.groups()
        return _json({"groups": [plain(one) for one in groups], "leader": leader})

    def _why(self, request: Request) -> Response:
        given = request.query_params
        told = self._domains.optimization.explain(
            self._table(request),
            given.get("partition") or None,
            _limit(request),
            by_expiry=given.get("order") == "expiry",
        )
        return _json(plain(told))

    def _history(self, request: Request) -> Response:
        return self._runs(request, None)

    def _table_history(self, request: Request) -> Response:
        return self._runs(request, self._table(request))

    def _runs(self, request: Request, table: LakeTable | None) -> Response:
        before = _place(request.query_params.get("before", ""), NUMBERS_OF_PLACE if table is None else 2)
        page = self._domains.optimization.runs(table, before, _limit(request))
        following = None if page.following is None else ".".join(map(str, page.following))
        return _json({"runs": [plain(one) for one in page.runs], "before": following})

    def _table(self, request: Request) -> LakeTable:
        catalog, database, table = (str(request.path_params[name]).lower() for name in ("catalog", "database", "table"))
        return self._domains.catalog.get_lake_table(catalog, database, table)


def error_answer(code: str, message: str, status: HTTPStatus) -> Response:
    """What went wrong, as JSON."""
    return _json({"error": {"code": code, "message": message}}, status)


def _json(content: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(text, status, {"cache-control": "no-store"}, "application/json")


def _limit(request: Request) -> int:
    limit = moments.whole("limit", request.query_params.get("limit") or str(PAGE_DEFAULT))
    if not 1 <= limit <= PAGE_MAX:
        raise InvalidArgument(f"limit is {limit}: it is 1 to {PAGE_MAX}")
    return limit


def _state(word: str) -> pb.OptimizationState.ValueType:
    states = {name.lower(): state for name, state in pb.OptimizationState.items() if state}
    if word not in states:
        raise InvalidArgument(f"{word[:100]!r} is no state; there are {', '.join(states)}")
    return states[word]


def _place(text: str, count: int) -> tuple[int, ...] | None:
    if not text:
        return None
    numbers = text.split(".")
    if len(numbers) != count or not all(one.isascii() and one.isdigit() and len(one) < 20 for one in numbers):
        raise InvalidArgument(f"before = {text[:100]!r} is not what an answer had as 'before'")
    return tuple(map(int, numbers))
