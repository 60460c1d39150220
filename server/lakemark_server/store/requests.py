"""Request ids: a change that is asked for twice happens once, and both requests get the same answer.

Answers are kept for as long as a client may still repeat its request because it got none. After that the id counts as
new. The state of an instant (committed, rolled back) does not depend on this: it can be asked for at any time.
"""

from __future__ import annotations

from typing import Final, TypeVar, cast

from google.protobuf.message import Message

from lakemark_core.errors import InvalidArgument
from lakemark_proto.store.v1 import store_pb2 as records
from lakemark_server.kv import ReadTransaction, Store, Transaction, blob
from lakemark_server.store.keyspace import REQUEST_TIMES, REQUESTS

M = TypeVar("M", bound=Message)

REQUEST_ID_CHARS_MAX: Final = 200
FORGOTTEN_A_TRANSACTION: Final = 200
FORGOTTEN_AT_ONCE_MAX: Final = 100_000


def check_request_id(request_id: str) -> None:
    """Raises InvalidArgument if the id is too long."""
    if len(request_id) > REQUEST_ID_CHARS_MAX:
        raise InvalidArgument(f"request_id has {len(request_id)} characters; at most {REQUEST_ID_CHARS_MAX} are kept")


def find(tx: ReadTransaction, request_id: str, kind: str, answer: type[M]) -> M | None:
    """The recorded answer. Raises InvalidArgument if the id is too long or was used for another kind of request."""
    check_request_id(request_id)
    stored = blob.get(tx, REQUESTS.space(request_id))
    if stored is None:
        return None
    record = records.RequestRecord.FromString(stored)
    if record.kind != kind:
        raise InvalidArgument(
            f"request_id {request_id!r} was already used for {record.kind}; each request needs an id of its own"
        )
    return answer.FromString(record.response)


def record(tx: Transaction, request_id: str, kind: str, response: Message, now_ms: int) -> None:
    """Keeps the answer of a request that has none yet."""
    stored = records.RequestRecord(kind=kind, response=response.SerializeToString(), created_ms=now_ms)
    blob.put(tx, REQUESTS.space(request_id), stored.SerializeToString())
    tx.set(REQUEST_TIMES.key(now_ms, request_id), b"")


def forget(store: Store, before_ms: int) -> int:
    """Removes answers that were recorded before that time, at most ``FORGOTTEN_AT_ONCE_MAX``. Returns how many.

    Each transaction removes a few, found by their time: the cost depends only on how many are removed.
    """

    def body(tx: Transaction) -> int:
        begin, end = REQUEST_TIMES.range()[0], REQUEST_TIMES.key(before_ms)
        old = tx.get_range(begin, end, limit=FORGOTTEN_A_TRANSACTION)
        for key, _ in old:
            tx.clear(key)
            blob.clear(tx, REQUESTS.space(cast(str, REQUEST_TIMES.unpack(key)[-1])))
        return len(old)

    forgotten = 0
    while forgotten < FORGOTTEN_AT_ONCE_MAX:
        removed = store.transact(body)
        forgotten += removed
        if removed < FORGOTTEN_A_TRANSACTION:
            break
    return forgotten
