"""The pages over HTTP: addresses, forms, errors. ``pages`` makes what they show, ``guard`` says who is let in."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import structlog
from anyio import CapacityLimiter, to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from lakemark_core.errors import (
    AlreadyExists,
    CommitConflict,
    FailedPrecondition,
    InvalidArgument,
    LakemarkError,
    LimitExceeded,
    NotFound,
    Unavailable,
    UnsupportedOperation,
)
from lakemark_server.catalog.names import DEFAULT_CATALOG, catalog_name
from lakemark_server.catalog.search import BEGINNING, TablePlace
from lakemark_server.context import caller, deadline
from lakemark_web import api, guard, texts
from lakemark_web.addresses import page_path, table_path
from lakemark_web.connection_limits import ConnectionLimits
from lakemark_web.domains import Domains
from lakemark_web.gate import Gate
from lakemark_web.live import LiveStreams
from lakemark_web.pages import actions, events, group_actions, moments, optimizer, overview, service
from lakemark_web.pages import table as table_pages
from lakemark_web.pages.table import TableRequest
from lakemark_web.summaries import Summaries
from lakemark_web.survey import Surveys

HERE: Final = Path(__file__).parent
REQUEST_S_MAX: Final = 20.0
FORM_BYTES_MAX: Final = 64 << 10
THREADS: Final = 8
"""Pages that are made at once; others wait."""

_COMPRESSED_MIN: Final = 1_000
_STATUS: Final[tuple[tuple[type[LakemarkError], HTTPStatus], ...]] = (
    (InvalidArgument, HTTPStatus.BAD_REQUEST),
    (NotFound, HTTPStatus.NOT_FOUND),
    (AlreadyExists, HTTPStatus.CONFLICT),
    (CommitConflict, HTTPStatus.CONFLICT),
    (FailedPrecondition, HTTPStatus.CONFLICT),
    (LimitExceeded, HTTPStatus.CONFLICT),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
)

_log = structlog.get_logger(__name__)

View = Callable[[Request], Response]


@dataclass(frozen=True, slots=True)
class WebSettings:
    """``hosts``: names beside addresses and "localhost" that requests may use. ``actions``: whether they are let in."""

    hosts: Collection[str] = ()
    actions: bool = False


class Pages:
    """All pages, as an ASGI application (``app``)."""

    def __init__(self, domains: Domains, settings: WebSettings, limits: ConnectionLimits) -> None:
        self._domains = domains
        self._settings = settings
        self._surveys = Surveys(domains)
        self._summaries = Summaries(domains.snapshots)
        self._secret = secrets.token_bytes(32)
        self._live = LiveStreams(domains, limits)
        self._statics = {path.name: path.read_bytes() for path in sorted((HERE / "static").iterdir())}
        self._build = hashlib.sha256(b"".join(self._statics.values())).hexdigest()[:12]
        self._threads = CapacityLimiter(THREADS)
        self._templates = _templates(domains, self._build, settings.actions)
        table = "/tables/{catalog}/{database}/{table}"
        self.app = Starlette(
            routes=[
                Route("/", self._page(self._overview)),
                Route("/events", self._page(self._events)),
                Route("/optimizer", self._page(self._optimizer)),
                Route("/optimizer/action", self._page(self._ask_group)),
                Route("/optimizer/action", self._act_group, methods=["POST"]),
                Route("/service", self._page(self._service)),
                Route(f"{table}", self._page(self._summary)),
                Route(f"{table}/files", self._page(self._files)),
                Route(f"{table}/timeline", self._page(self._timeline)),
                Route(f"{table}/references", self._page(self._references)),
                Route(f"{table}/conflicts", self._page(self._conflicts)),
                Route(f"{table}/optimizing", self._page(self._optimizing)),
                Route(f"{table}/action", self._page(self._ask)),
                Route(f"{table}/action", self._act, methods=["POST"]),
                Route("/live", self._live.stream),
                Route("/static/{name}", self._static),
                *api.OptimizationApi(domains, self._page).routes(),
            ],
            middleware=[
                Middleware(Gate, hosts=frozenset(host.lower() for host in settings.hosts)),
                Middleware(GZipMiddleware, minimum_size=_COMPRESSED_MIN, compresslevel=4),
            ],
            exception_handlers={HTTPException: self._http_error, LakemarkError: self._lakemark_error},
        )

    def end_streams(self) -> None:
        """Ends what would keep connections open; called by another thread than that of the event loop."""
        self._live.close()

    def close(self) -> None:
        """Ends what runs beside the pages."""
        self._surveys.stop()

    # -- how pages are answered ---------------------------------------------------------------------------------------

    def _page(self, view: View) -> Callable[[Request], Any]:
        async def answered(request: Request) -> Response:
            return await self._in_thread(view, request)

        return answered

    async def _in_thread(self, view: View, request: Request) -> Response:
        ends = deadline.Deadline.after(REQUEST_S_MAX)  # so that what has waited long for its turn takes none
        return await to_thread.run_sync(self._timed, view, request, ends, limiter=self._threads)

    def _timed(self, view: View, request: Request, ends: deadline.Deadline) -> Response:
        ends.check()
        begun = time.perf_counter()
        with caller.named(lambda: _who(request)), deadline.within(ends):
            try:
                response = view(request)
            except NotFound:
                mounted = self._mounted(request)
                if mounted is None:
                    raise
                response = mounted
            except (LakemarkError, HTTPException):
                raise
            except Exception as error:
                response = self._defect(request, error)
        response.headers["server-timing"] = f"page;dur={(time.perf_counter() - begun) * 1_000:.2f}"
        return response

    def _html(self, template: str, status: HTTPStatus = HTTPStatus.OK, /, **shown: Any) -> Response:
        text = self._templates.get_template(template).render(now_ms=self._domains.clock(), **shown)
        return Response(text, status, {"cache-control": "no-store"}, "text/html")

    def _mounted(self, request: Request) -> Response | None:
        """What is said of a table of a database of another Metastore; None: the address is of no such table."""
        if request.method != "GET" or "table" not in request.path_params:
            return None
        asked = _asked(request, {})
        try:
            mount = self._domains.mounts.get(asked.catalog, asked.database)
        except NotFound:
            return None
        if request.url.path.startswith(api.PREFIX):
            raise NotFound(
                f"{asked.database} of {asked.catalog} is a database of the Metastore {mount.uri}: what is known of its "
                "tables is there"
            )
        return self._html("mounted.html", mount=mount, catalog=asked.catalog, table=asked.table)

    def _http_error(self, request: Request, error: Exception) -> Response:
        status = HTTPStatus(error.status_code) if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
        said = error.detail if isinstance(error, HTTPException) else ""
        message = "there is no page with this address" if status is HTTPStatus.NOT_FOUND else said
        return self._error(request, status, message, status.phrase.lower())

    def _lakemark_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, LakemarkError)  # noqa: S101 - what this handler is registered for
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
        return self._error(request, status, error.message, error.code)

    def _defect(self, request: Request, error: Exception) -> Response:
        _log.error("a web page failed", path=request.url.path, exc_info=error)
        message = "this is a defect of the service; its log says more"
        return self._error(request, HTTPStatus.INTERNAL_SERVER_ERROR, message, "internal")

    def _error(self, request: Request, status: HTTPStatus, message: str, code: str) -> Response:
        if request.url.path.startswith(api.PREFIX):
            return api.error_answer(code, message, status)
        return self._html("error.html", status, message=message, code=code)

    async def _static(self, request: Request) -> Response:
        content = self._statics.get(request.path_params["name"])
        if content is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        kind = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}[
            request.path_params["name"].rpartition(".")[2]
        ]
        return Response(content, headers={"cache-control": "public, max-age=31536000, immutable"}, media_type=kind)

    # -- pages --------------------------------------------------------------------------------------------------------

    def _overview(self, request: Request) -> Response:
        given = request.query_params
        database, _, name = given.get("after", "").partition(".")
        asked = overview.OverviewRequest(
            catalog=_catalog(given),
            text=given.get("q", "")[:200],
            sort=given.get("sort", "name") if given.get("sort") in overview.SORTS else "name",
            after=TablePlace(database, name) if database else BEGINNING,
            offset=moments.whole("offset", given.get("offset") or "0"),
        )
        return self._html("overview.html", **overview.view(self._domains, self._surveys, asked))

    def _events(self, request: Request) -> Response:
        given = request.query_params
        catalog = self._known(_catalog(given))
        before = moments.whole("before", given.get("before") or "0")
        shown = events.view(self._domains, catalog, given.get("only", "")[:300], given.get("kind", ""), before)
        return self._html("events.html", **shown)

    def _service(self, request: Request) -> Response:
        return self._html("service.html", **service.view(self._domains, self._known(_catalog(request.query_params))))

    def _optimizer(self, request: Request) -> Response:
        given = request.query_params
        shown = optimizer.groups(self._domains, given.get("before", ""))
        catalog = self._known(_catalog(given))
        return self._html("optimizer.html", **shown, shown_catalog=catalog, done="done" in given)

    def _summary(self, request: Request) -> Response:
        asked = _asked(request)
        try:
            return self._html("table.html", **table_pages.summary(self._domains, self._summaries, asked))
        except UnsupportedOperation:
            return self._html("warehouse.html", **table_pages.warehouse(self._domains, asked))

    def _files(self, request: Request) -> Response:
        given, asked = request.query_params, _asked(request)
        offset = moments.whole("offset", given.get("offset") or "0")
        if "partition" in given:
            shown = table_pages.partition(self._domains, asked, given["partition"], offset)
            return self._html("partition.html", **shown)
        shown = table_pages.files(self._domains, self._summaries, asked, given.get("sort", ""), offset)
        return self._html("files.html", **shown)

    def _timeline(self, request: Request) -> Response:
        before = moments.whole("before", request.query_params.get("before") or "0")
        return self._html(
            "timeline.html",
            **table_pages.timeline(self._domains, _asked(request), before),
            done="done" in request.query_params,
        )

    def _references(self, request: Request) -> Response:
        return self._html("references.html", **table_pages.references(self._domains, _asked(request)))

    def _conflicts(self, request: Request) -> Response:
        return self._html("conflicts.html", **table_pages.conflicts(self._domains, _asked(request)))

    def _optimizing(self, request: Request) -> Response:
        given = request.query_params
        offset = moments.whole("offset", given.get("offset") or "0")
        part = optimizer.OptimizerRequest(given.get("partition", ""), offset, given.get("before", ""))
        shown = optimizer.table(self._domains, _asked(request), part)
        return self._html("optimizing.html", **shown, done="done" in given)

    # -- actions ------------------------------------------------------------------------------------------------------

    def _ask(self, request: Request) -> Response:
        """Asks once more before an action, with the token without which nothing is done."""
        self._require_actions()
        asked = _asked(request, {})
        shown = table_pages.frame(self._domains, asked)
        action = actions.asked_for(shown["table"], request.query_params)
        return self._asked(request, action, "confirm.html", shown)

    def _ask_group(self, request: Request) -> Response:
        self._require_actions()
        action = group_actions.asked_for(request.query_params)
        catalog = self._known(_catalog(request.query_params))
        return self._asked(request, action, "confirm_group.html", {"shown_catalog": catalog})

    def _asked(self, request: Request, action: actions.Action, template: str, shown: Mapping[str, Any]) -> Response:
        cookie = request.cookies.get(guard.COOKIE, "")
        fresh = "" if guard.is_cookie(cookie) else guard.new_cookie()
        token = guard.token_of(self._secret, fresh or cookie)
        request_id = f"web-{secrets.token_hex(16)}"
        response = self._html(template, action=action, token=token, request_id=request_id, **shown)
        # What is compressed together with text of the address could be found out by the length of the answer.
        response.headers["content-encoding"] = "identity"
        if fresh:
            response.set_cookie(guard.COOKIE, fresh, path="/", httponly=True, samesite="strict")
        return response

    async def _act(self, request: Request) -> Response:
        form = await _form(request)
        return await self._in_thread(lambda request: self._acted(request, form), request)

    async def _act_group(self, request: Request) -> Response:
        form = await _form(request)
        return await self._in_thread(lambda request: self._acted_on_group(request, form), request)

    def _acted(self, request: Request, form: Mapping[str, str]) -> Response:
        self._let_in(request, form)
        asked = _asked(request, {})
        table = self._domains.catalog.get_lake_table(asked.catalog, asked.database, asked.table)
        action = actions.run(self._domains, table, form)
        path = table_path(asked.catalog, asked.database, asked.table, action.page)
        return RedirectResponse(f"{path}?done=yes", HTTPStatus.SEE_OTHER)

    def _acted_on_group(self, request: Request, form: Mapping[str, str]) -> Response:
        self._let_in(request, form)
        path = page_path("/optimizer", self._known(_catalog(request.query_params)), done="yes")
        group_actions.run(self._domains, form)
        return RedirectResponse(path, HTTPStatus.SEE_OTHER)

    def _let_in(self, request: Request, form: Mapping[str, str]) -> None:
        """Logs and refuses what does not come from a page of ours. Raises FailedPrecondition, HTTPException."""
        why_not = guard.why_not_act(
            request.headers.get("host", ""),
            request.headers.get("origin", ""),
            request.headers.get("sec-fetch-site", ""),
            request.cookies.get(guard.COOKIE, ""),
            form.get(guard.TOKEN_FIELD, ""),
            self._secret,
        )
        if why_not or not self._settings.actions:
            _log.warning(
                "an action on the web page was refused",
                path=request.url.path,
                by=caller.current(),
                reason=why_not or "switched off",
                origin=request.headers.get("origin", "")[:200],
            )
        self._require_actions()
        if why_not:
            raise HTTPException(HTTPStatus.FORBIDDEN, why_not)

    def _require_actions(self) -> None:
        """Raises FailedPrecondition while they are switched off."""
        if not self._settings.actions:
            raise FailedPrecondition(
                "actions on the web page are switched off; whoever runs the service switches them on with the setting "
                "web_actions"
            )

    def _known(self, catalog: str) -> str:
        """Raises NotFound for a catalog that is not there."""
        if catalog not in self._domains.catalog.list_catalogs():
            raise NotFound(f"there is no catalog {catalog!r}")
        return catalog


def _templates(domains: Domains, build: str, actions_on: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_seen,
    )
    environment.filters |= {
        "size": texts.size,
        "count": texts.count,
        "counted": texts.counted,
        "time": texts.time,
        "iso_time": texts.iso_time,
        "ago": texts.ago,
        "duration": texts.duration,
        "words": texts.words,
        "exact": texts.Exact,
        "quoted": lambda text: quote(str(text), safe=""),
    }
    environment.globals |= {
        "table_path": table_path,
        "page_path": page_path,
        "build": build,
        "actions_on": actions_on,
        "default_catalog": DEFAULT_CATALOG,
        "process": domains.process,
    }
    return environment


def _seen(value: object) -> object:
    """What a template shows for a value. What macros made has been through it already."""
    return value if type(value) is not str else texts.visible(value)


def _catalog(given: Mapping[str, str]) -> str:
    return catalog_name(given.get("catalog", ""))


def _asked(request: Request, given: Mapping[str, str] | None = None) -> TableRequest:
    """The table of the address, at the moment of the query. Raises InvalidArgument."""
    catalog, database, table = (str(request.path_params[name]).lower() for name in ("catalog", "database", "table"))
    return TableRequest(catalog, database, table, moments.moment_of(request.query_params if given is None else given))


def _who(request: Request) -> str:
    return f"web page, {request.client.host if request.client else 'unknown'}"


async def _form(request: Request) -> dict[str, str]:
    """The fields of a small form. Raises HTTPException for a large one."""
    length = request.headers.get("content-length", "")
    if not length.isdigit() or int(length) > FORM_BYTES_MAX:
        raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the form is too large")
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "this is no form of these pages")
    try:
        body = await request.body()
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
    except (ValueError, ClientDisconnect) as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the form cannot be read") from error
