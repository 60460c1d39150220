"""Request ids: a mutation that is asked for twice happens once and gets the same answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

from lakemark.errors import InvalidArgument
from lakemark_proto.store.v1 import store_pb2 as records
from lakemark_server.clock import ClockMs
from lakemark_server.keyspace import REQUESTS
from lakemark_server.kv import Store, Transaction, blob

M = TypeVar("M", bound=Message)

REQUEST_ID_CHARS_MAX = 200


def check_request_id(request_id: str) -> None:
    if len(request_id) > REQUEST_ID_CHARS_MAX:
        raise InvalidArgument(f"request_id has {len(request_id)} characters; at most {REQUEST_ID_CHARS_MAX} are kept")


def once(tx: Transaction, request_id: str, kind: str, now_ms: int, answer: type[M], body: Callable[[], M]) -> M:
    """The recorded answer of ``request_id``, or that of ``body``, recorded in the same transaction.

    An empty id records nothing. Raises InvalidArgument if the id was used for another kind of request.
    """
    if not request_id:
        return body()
    check_request_id(request_id)
    space = REQUESTS.space(request_id)
    stored = blob.get(tx, space)
    if stored is not None:
        record = records.RequestRecord.FromString(stored)
        if record.kind != kind:
            raise InvalidArgument(
                f"request_id {request_id!r} was already used for {record.kind}; each request needs an id of its own"
            )
        return answer.FromString(record.response)
    response = body()
    record = records.RequestRecord(kind=kind, response=response.SerializeToString(), created_ms=now_ms)
    blob.put(tx, space, record.SerializeToString())
    return response


def transact_once(
    store: Store, clock: ClockMs, request_id: str, kind: str, answer: type[M], body: Callable[[Transaction, int], M]
) -> M:
    """``once`` in a transaction of its own; ``body`` gets the time in ms, too."""

    def run(tx: Transaction) -> M:
        now = clock()
        return once(tx, request_id, kind, now, answer, lambda: body(tx, now))

    return store.transact(run)
