"""Admission of Metastore calls: the same limits as for gRPC, with refusals that clients of this protocol understand.

A call that is refused was not begun. It is answered with a TApplicationException, not with a MetaException: Hive's
clients take the first for a temporary failure of the server and ask again after their retry delay.
"""

from __future__ import annotations

import time
from functools import cache, partial
from typing import Any, Final, TypeVar

from lakemark_core.errors import LakemarkError, Overloaded
from lakemark_hms.doors.tables import ENDING_CALLS
from lakemark_hms.handlers import rank_of
from lakemark_hms.names import database_name
from lakemark_hms.wire import cut
from lakemark_hms.wire.dispatch import Call, Handler, RefusedError, Session
from lakemark_hms.wire.lanes import Lane, Lanes
from lakemark_server.admission.lanes import LanePolicy
from lakemark_server.admission.pressure import InflightBytes
from lakemark_server.admission.ranks import Rank
from lakemark_server.admission.tenants import Tenants
from lakemark_server.catalog.names import DEFAULT_CATALOG, NAME_CHARS_MAX
from lakemark_server.context import caller, deadline
from lakemark_server.context.deadline import Deadline
from lakemark_server.metrics.process import REQUEST_ERRORS, REQUESTS
from lakemark_thrift.services import METHODS

_DATABASE_NAMES: Final = frozenset({"db_name", "dbname", "dbName", "db", "database", "databaseName"})
_CATALOG_NAMES: Final = frozenset({"catName", "catalogName", "catalog", "catname", "cat_name"})
_PROTOCOL: Final = "hms"
_POLICY: Final = LanePolicy(writes_leave_room=False)
_Path = tuple[int, ...]
T = TypeVar("T")


def lane_of(method: str, lanes: Lanes[T]) -> Lane[T] | None:
    """The lane of a call of the method; None if there is no room for it."""
    rank = rank_of(method)
    # Files may have to be written again when a statement ends: minutes in which nobody else waits.
    lane = lanes.slow if method in ENDING_CALLS else _POLICY.lane_for(rank, lanes)
    return lane if _POLICY.has_room(rank, lane) else None


class Admission:
    """Admission at one port. ``call_s_max``: the longest time of a call; this protocol has no deadlines of its own."""

    def __init__(self, tenants: Tenants, inflight: InflightBytes, call_s_max: float) -> None:
        self._tenants = tenants
        self._inflight = inflight
        self._call_s_max = call_s_max

    def run(self, call: Call, handler: Handler) -> object:
        """The handler's result. The call counts against its tenant while it runs. Raises RefusedError."""
        since = time.perf_counter()
        try:
            return self._run(call, handler)
        except LakemarkError as error:
            REQUEST_ERRORS.add(_PROTOCOL, call.name, error.code)
            raise
        except RefusedError:
            REQUEST_ERRORS.add(_PROTOCOL, call.name, Overloaded.code)
            raise
        except Exception as error:  # what the contract declares, or a defect
            REQUEST_ERRORS.add(_PROTOCOL, call.name, type(error).__name__)
            raise
        finally:
            REQUESTS.observe(time.perf_counter() - since, _PROTOCOL, call.name)

    def _run(self, call: Call, handler: Handler) -> object:
        rank = rank_of(call.name)
        with deadline.within(Deadline.after(self._call_s_max)), caller.named(partial(_caller_of, call.session)):
            if rank is Rank.VITAL:
                return handler(call)
            try:
                entered = self._tenants.enter(tenant_of(call), rank)
            except Overloaded as error:
                raise RefusedError(error.message) from error
            try:
                return handler(call)
            finally:
                self._tenants.leave(entered)

    def answered(self, method: str, tenant: str, since_s: float) -> bool:
        """Counts a read that was answered at once, which began at ``since_s`` (``time.perf_counter``).

        False: the tenant may not call now. Nothing was counted then, and ``run`` will say why.
        """
        if not self._tenants.pass_through(tenant, Rank.READ):
            return False
        REQUESTS.observe(time.perf_counter() - since_s, _PROTOCOL, method)
        return True

    def enter(self, size_bytes: int) -> None:
        """Takes room for a message that is being worked on, until ``leave``. Raises RefusedError."""
        try:
            self._inflight.enter(size_bytes)
        except Overloaded as error:
            raise RefusedError(error.message) from error

    def leave(self, size_bytes: int) -> None:
        self._inflight.leave(size_bytes)


def _caller_of(session: Session) -> str:
    """Who the client says it is (``set_ugi``), and where its connection comes from."""
    return f"{session.user} ({session.peer})" if session.user else session.peer


def tenant_of(call: Call) -> str:
    """The catalog of a call, as ``@catalog#database`` or a field names it, or the default. Nothing else is decoded."""
    databases, catalogs = _paths(call.name)
    data, body = call.message.data, call.message.header.body
    for path in databases:
        text = _text(data, body, path)
        if text.startswith("@"):
            try:
                return database_name(text).catalog
            except LakemarkError:  # the handler will say what is wrong with it
                return DEFAULT_CATALOG
    return next((text.lower() for path in catalogs if (text := _text(data, body, path))), DEFAULT_CATALOG)


@cache
def _paths(method: str) -> tuple[tuple[_Path, ...], tuple[_Path, ...]]:
    """The paths of database names and of catalog names in the arguments of a method."""
    databases: list[_Path] = []
    catalogs: list[_Path] = []

    def look(spec: tuple[Any, ...], above: _Path) -> None:
        for entry in spec:
            if entry is None:
                continue
            number, kind, name, inner = entry[:4]
            if kind == cut.STRING and name in _DATABASE_NAMES:
                databases.append((*above, number))
            elif kind == cut.STRING and name in _CATALOG_NAMES:
                catalogs.append((*above, number))
            elif kind == cut.STRUCT and not above:
                look(inner[1], (number,))

    look(METHODS[method].args.thrift_spec, ())
    return tuple(databases[:1]), tuple(catalogs)


def _text(data: bytes, at: int, path: _Path) -> str:
    """The text at the path if one was sent that can be a name; else ""."""
    value = cut.find(data, at, path)
    if value is None or value[0] != cut.STRING:
        return ""
    length = int.from_bytes(data[value[1] : value[1] + 4], "big")
    if length > 2 * NAME_CHARS_MAX + 2:
        return ""
    return data[value[1] + 4 : value[1] + 4 + length].decode(errors="replace")
