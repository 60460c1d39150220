"""Listeners: outside Hive Metastores that follow a catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final
from uuid import uuid4

from lakemark.arguments import Between, Count, checked
from lakemark.client.calls import Calls
from lakemark_proto.v1 import listeners_pb2 as pb
from lakemark_proto.v1.listeners_pb2_grpc import ListenerServiceStub

_CONDITIONS: Final = {
    pb.LISTENER_ACTIVE: "active",
    pb.LISTENER_PAUSED: "paused",
    pb.LISTENER_FAILING: "failing",
}
_STATES: Final = {
    pb.DIFFERENCE_FOUND: "different",
    pb.DIFFERENCE_REPAIRED: "repaired",
    pb.DIFFERENCE_LEFT: "left",
    pb.DIFFERENCE_FAILED: "failed",
}
_COMPARE_S_MAX: Final = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Difference:
    """An object that is not the same on both sides.

    ``state``: "different" (a comparison found it), "left" (it stays so, for the ``reason``) or "failed" (the outside
    Metastore refused). ``since_ms`` 0: not known.
    """

    kind: str
    name: str
    state: str
    reason: str
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class ListenerComparison:
    """How many objects were compared, how many differ, and the first of these."""

    compared: int
    different: int
    differences: Sequence[Difference]


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener and how it is doing.

    ``condition``: "active", "paused" or "failing". It is done with all events up to ``offset``; ``lag_events`` are
    behind that, the first of them ``lag_ms`` old. ``problems`` are what stays different; ``listeners.list`` leaves
    them out. Times in ms; 0: never.
    """

    catalog: str
    name: str
    uri: str
    patterns: Sequence[str]
    condition: str
    offset: int
    lag_events: int
    lag_ms: int
    repaired: int
    repairs_asked: int
    repairs_done: int
    calls: int
    failed_attempts: int
    compared_ms: int
    last_error: str
    last_error_ms: int
    failing_since_ms: int
    next_attempt_ms: int
    compare_interval_ms: int
    adopt: bool
    owner: str
    created_ms: int
    runner: str
    problems: Sequence[Difference] = ()


@checked
class Listeners:
    """``client.listeners``. ``catalog`` "" is the default catalog."""

    def __init__(self, calls: Calls) -> None:
        self._call = calls
        self._stub = ListenerServiceStub(calls.channel)

    def create(
        self,
        name: str,
        uri: str,
        patterns: Sequence[str] = (),
        *,
        compare_interval_s: Annotated[float, Between(0, _COMPARE_S_MAX)] = 0,
        adopt: bool = False,
        paused: bool = False,
        catalog: str = "",
        request_id: str | None = None,
    ) -> Listener:
        """Keeps databases and tables in the Metastore at ``uri`` (``thrift://host:9083``) from now on.

        ``patterns``: "sales" (a database with all that it has), "sales.orders_*"; none: everything. Everything is
        compared and repaired at once, and then every ``compare_interval_s`` (0: an hour). ``adopt``: objects of an
        earlier listener of this name are its own. Raises AlreadyExists, InvalidName, InvalidArgument.
        """
        request = pb.CreateListenerRequest(
            catalog=catalog,
            name=name,
            uri=uri,
            patterns=patterns,
            compare_interval_ms=int(compare_interval_s * 1_000),
            adopt=adopt,
            paused=paused,
            request_id=request_id or str(uuid4()),
        )
        return _from(self._call(self._stub.CreateListener, request, mutation=True, tell_user=True))

    def get(self, name: str, *, catalog: str = "") -> Listener:
        """Raises NotFound."""
        return _from(self._call(self._stub.GetListener, pb.GetListenerRequest(catalog=catalog, name=name)))

    def list(self, *, catalog: str = "") -> list[Listener]:
        """In order of name, without problems."""
        answer = self._call(self._stub.ListListeners, pb.ListListenersRequest(catalog=catalog))
        return [_from(listener) for listener in answer.listeners]

    def compare(self, name: str, *, limit: Count = 0, catalog: str = "") -> ListenerComparison:
        """What differs now; nothing is changed. Raises NotFound, Unavailable if the outside Metastore is away."""
        request = pb.CompareListenerRequest(catalog=catalog, name=name, limit=limit)
        answer = self._call(self._stub.CompareListener, request)
        return ListenerComparison(answer.compared, answer.different, [_difference(one) for one in answer.differences])

    def repair(self, name: str, overwrite: Sequence[str] = (), *, catalog: str = "") -> Listener:
        """Asks for a comparison of everything with repair, which is done when ``repairs_done`` is ``repairs_asked``.

        ``overwrite``: objects ("sales.orders"; "*": all) whose changes by hand are overwritten. Raises NotFound.
        """
        request = pb.RepairListenerRequest(catalog=catalog, name=name, overwrites=overwrite, request_id=str(uuid4()))
        return _from(self._call(self._stub.RepairListener, request, mutation=True))

    def pause(self, name: str, *, catalog: str = "") -> Listener:
        """Nothing is mirrored until ``resume``. Raises NotFound."""
        request = pb.PauseListenerRequest(catalog=catalog, name=name, request_id=str(uuid4()))
        return _from(self._call(self._stub.PauseListener, request, mutation=True))

    def resume(self, name: str, *, catalog: str = "") -> Listener:
        """Goes on where it was. Raises NotFound."""
        request = pb.ResumeListenerRequest(catalog=catalog, name=name, request_id=str(uuid4()))
        return _from(self._call(self._stub.ResumeListener, request, mutation=True))

    def drop(self, name: str, *, if_exists: bool = False, catalog: str = "") -> bool:
        """Whether there was one. What it made outside stays there. Raises NotFound."""
        request = pb.DropListenerRequest(catalog=catalog, name=name, if_exists=if_exists, request_id=str(uuid4()))
        return self._call(self._stub.DropListener, request, mutation=True).dropped


def _from(message: pb.Listener) -> Listener:
    state = message.state
    return Listener(
        catalog=message.catalog,
        name=message.name,
        uri=message.uri,
        patterns=tuple(message.patterns),
        condition=_CONDITIONS.get(message.condition, "unknown"),
        offset=message.offset,
        lag_events=message.lag_events,
        lag_ms=message.lag_ms,
        repaired=state.repaired,
        repairs_asked=message.repairs_asked,
        repairs_done=state.repairs_done,
        calls=state.calls,
        failed_attempts=state.failed_attempts,
        compared_ms=state.compared_ms,
        last_error=state.last_error,
        last_error_ms=state.last_error_ms,
        failing_since_ms=state.failing_since_ms,
        next_attempt_ms=state.next_attempt_ms,
        compare_interval_ms=message.compare_interval_ms,
        adopt=message.adopt,
        owner=message.owner,
        created_ms=message.created_ms,
        runner=message.runner,
        problems=[_difference(one) for one in message.problems],
    )


def _difference(message: pb.ListenerDifference) -> Difference:
    return Difference(
        message.kind, message.name, _STATES.get(message.state, "unknown"), message.reason, message.since_ms
    )
