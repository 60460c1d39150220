"""What plans share with earlier ones: bound predicates, and whole responses.

A version never changes, so neither does a plan of it. The keys of what is kept here never change either: a schema, or a
version of a table (by the table's id and the key of the branch that holds it).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, NamedTuple

from lakemark_core.expressions import And, Applied, Expr, In, Like, Or, bind, normalize
from lakemark_core.messages.predicates import predicate_from_proto
from lakemark_core.types import Schema
from lakemark_proto.v1 import snapshot_pb2, types_pb2
from lakemark_server.file_index.at_hand import may_make
from lakemark_server.file_index.cache import ByteLru
from lakemark_server.snapshots.service import ResolvedVersion

RESPONSES_BYTES_MAX: Final = 8 << 20
RESPONSE_BYTES_MAX: Final = 64 << 10
REQUEST_BYTES_MAX: Final = 2 << 10
BOUND_BYTES: Final = 8 << 20
# Limits of a plan that is made on the event loop, so that it takes about half a millisecond at most.
QUICK_TEXT_BYTES_MAX: Final = 160
"""Serialized predicate that was not parsed before."""
QUICK_SNAPSHOT_PARTS_MAX: Final = 5_000
"""Parts of the snapshot, whose zones the plan reads."""
QUICK_PARTS_MAX: Final = 4
"""Parts whose files the plan reads."""
QUICK_FILES_MAX: Final = 1_000
"""Files in the plan."""
_QUICK_STATISTICS_MAX: Final = 8
_QUICK_COMPARISONS_MAX: Final = 8
_PREDICATE_BYTES_KEPT: Final = 4_096
_ENTRY_BYTES: Final = 1_000
_BYTES_A_CHARACTER: Final = 100  # about what the parsed predicate takes for each byte of its message
_COLUMN_BYTES: Final = 500  # about, of a schema that a key keeps in memory


class _Bound(NamedTuple):
    predicate: Expr
    bytes: int
    little: bool


class Predicates:
    """Predicates bound to schemas. Thread-safe."""

    def __init__(self) -> None:
        self._bound: ByteLru[tuple[Schema, bytes], _Bound] = ByteLru(BOUND_BYTES, lambda bound: bound.bytes)
        self._parsers_loaded = False  # the first predicate loads them, which takes half a second

    def bound(self, message: types_pb2.Predicate, schema: Schema) -> Expr:
        """The predicate in normal form. Raises InvalidPredicate, InvalidArgument, NotAtHand."""
        stored = message.SerializeToString(deterministic=True)
        if len(stored) > _PREDICATE_BYTES_KEPT:
            may_make()
            return normalize(bind(predicate_from_proto(message), schema))
        known = self._bound.get((schema, stored))
        if known is None:
            if len(stored) > QUICK_TEXT_BYTES_MAX or not self._parsers_loaded:
                may_make()
            size = _ENTRY_BYTES + _BYTES_A_CHARACTER * len(stored) + _COLUMN_BYTES * len(schema.columns)
            predicate = normalize(bind(_parsed(stored), schema))
            self._parsers_loaded = True
            known = _Bound(predicate, size, _comparisons(predicate) <= _QUICK_COMPARISONS_MAX)
            self._bound.put((schema, stored), known)
        if not known.little:
            may_make()
        return known.predicate


def _comparisons(predicate: Expr) -> float:
    """How many values the bounds of a file are compared with.

    Infinite for patterns, which may be searched for, and for functions, which are computed for all files of a part:
    both may take long.
    """
    match predicate:
        case And(terms) | Or(terms):
            return sum(map(_comparisons, terms))
        case In(_, literals):
            return len(literals)
        case Like() | Applied():
            return math.inf
    return 1


def parsed(message: types_pb2.Predicate) -> Expr:
    """The predicate, not yet bound. Raises InvalidPredicate, InvalidArgument."""
    stored = message.SerializeToString(deterministic=True)
    return _parsed(stored) if len(stored) <= _PREDICATE_BYTES_KEPT else predicate_from_proto(message)


@lru_cache(maxsize=1_000)
def _parsed(stored: bytes) -> Expr:
    """Cached: engines repeat their predicates, and parsing takes longer than planning."""
    return predicate_from_proto(types_pb2.Predicate.FromString(stored))


class Encoded(NamedTuple):
    """A message that is already serialized."""

    data: bytes

    def SerializeToString(self) -> bytes:
        """The bytes of the message."""
        return self.data


class _Name(NamedTuple):
    """The key of a response. ``location`` is part of the response, and may change without a new version."""

    table_id: int
    branch_key: str
    version: int
    location: str
    request: bytes


class PlanResponses:
    """Responses of one page that no other page follows. Thread-safe.

    Where folding began makes no difference to them, because no further page depends on the order of files.
    """

    def __init__(self, bytes_max: int = RESPONSES_BYTES_MAX) -> None:
        self._kept: ByteLru[_Name, Encoded] = ByteLru(
            bytes_max, lambda response: len(response.data) + REQUEST_BYTES_MAX + _ENTRY_BYTES
        )

    def find(self, resolved: ResolvedVersion, request: snapshot_pb2.PlanFilesRequest) -> Encoded | None:
        """The response to a request for which ``is_small`` is true, or None."""
        return self._kept.get(_name(resolved, request))

    def keep(
        self,
        resolved: ResolvedVersion,
        request: snapshot_pb2.PlanFilesRequest,
        response: snapshot_pb2.PlanFilesResponse,
    ) -> None:
        """Keeps a response, unless it is large or one page among others."""
        if is_small(request) and not response.next_page_token and response.ByteSize() <= RESPONSE_BYTES_MAX:
            self._kept.put(_name(resolved, request), Encoded(response.SerializeToString()))


def is_short(request: snapshot_pb2.PlanFilesRequest) -> bool:
    """Whether the time for a response depends on the size of the plan alone."""
    few = len(request.statistics_columns) <= _QUICK_STATISTICS_MAX
    return few and request.encoding != snapshot_pb2.PROTOBUF and request.HasField("predicate")


def is_small(request: snapshot_pb2.PlanFilesRequest) -> bool:
    """Whether the response to this request may be kept."""
    return not request.page_token and request.ByteSize() <= REQUEST_BYTES_MAX


def _name(resolved: ResolvedVersion, request: snapshot_pb2.PlanFilesRequest) -> _Name:
    table, version = resolved.table, resolved.version
    return _Name(
        table.table_id,
        resolved.lineage.owner(version),
        version,
        table.record.location,
        request.SerializeToString(deterministic=True),
    )
