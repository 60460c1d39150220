"""What plans have in common with those before: bound predicates, and whole answers.

A version never changes, so neither does what a plan of it says. What is kept here has the names of things that never
change: a schema, or a version of a table (by the table's id and the key of the branch that holds it).
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
from lakemark_server.snapshots.service import Reference

ANSWERS_BYTES: Final = 8 << 20
ANSWER_BYTES_MAX: Final = 64 << 10
REQUEST_BYTES_MAX: Final = 2 << 10
BOUND_BYTES: Final = 8 << 20
# What a plan may take on the event loop: about half a millisecond.
QUICK_TEXT_BYTES_MAX: Final = 160
"""Of a predicate that was not parsed before."""
QUICK_SNAPSHOT_PARTS_MAX: Final = 5_000
"""All of which the plan looks at as such."""
QUICK_PARTS_MAX: Final = 4
"""Whose files the plan looks at."""
QUICK_FILES_MAX: Final = 1_000
"""That the plan has."""
_QUICK_STATISTICS_MAX: Final = 8
_QUICK_COMPARISONS_MAX: Final = 8
_PREDICATE_BYTES_KEPT: Final = 4_096
_ENTRY_BYTES: Final = 1_000
_BYTES_A_CHARACTER: Final = 100  # of a predicate's text: about what the tree takes
_COLUMN_BYTES: Final = 500  # about, of a schema that is kept in memory as part of a name


class _Bound(NamedTuple):
    predicate: Expr
    bytes: int
    little: bool


class Predicates:
    """Predicates bound to schemas. Thread-safe."""

    def __init__(self) -> None:
        self._bound: ByteLru[tuple[Schema, bytes], _Bound] = ByteLru(BOUND_BYTES, lambda bound: bound.bytes)
        self._parsers_loaded = False  # which the first predicate does, and which takes half a second

    def bound(self, message: types_pb2.Predicate, schema: Schema) -> Expr:
        """In normal form. Raises InvalidPredicate, InvalidArgument, NotAtHand."""
        stored = message.SerializeToString(deterministic=True)
        if len(stored) > _PREDICATE_BYTES_KEPT:
            may_make()
            return normalize(bind(predicate_from_proto(message), schema))
        found = self._bound.get((schema, stored))
        if found is None:
            if len(stored) > QUICK_TEXT_BYTES_MAX or not self._parsers_loaded:
                may_make()
            size = _ENTRY_BYTES + _BYTES_A_CHARACTER * len(stored) + _COLUMN_BYTES * len(schema.columns)
            predicate = normalize(bind(_parsed(stored), schema))
            self._parsers_loaded = True
            found = _Bound(predicate, size, _comparisons(predicate) <= _QUICK_COMPARISONS_MAX)
            self._bound.put((schema, stored), found)
        if not found.little:
            may_make()
        return found.predicate


def _comparisons(predicate: Expr) -> float:
    """With how many values the bounds of a file are compared; patterns may be searched for, and functions are computed
    for all files of a part, which takes long."""
    match predicate:
        case And(terms) | Or(terms):
            return sum(map(_comparisons, terms))
        case In(_, literals):
            return len(literals)
        case Like() | Applied():
            return math.inf
    return 1


def parsed(message: types_pb2.Predicate) -> Expr:
    """Not yet bound. Raises InvalidPredicate, InvalidArgument."""
    stored = message.SerializeToString(deterministic=True)
    return _parsed(stored) if len(stored) <= _PREDICATE_BYTES_KEPT else predicate_from_proto(message)


@lru_cache(maxsize=1_000)
def _parsed(stored: bytes) -> Expr:
    """Engines ask the same again and again, and parsing takes longer than planning."""
    return predicate_from_proto(types_pb2.Predicate.FromString(stored))


class Encoded(NamedTuple):
    """A message that was serialized before."""

    data: bytes

    def SerializeToString(self) -> bytes:
        return self.data


class _Name(NamedTuple):
    """``location`` is in the answer, and may change without a new version."""

    table_id: int
    branch_key: str
    version: int
    location: str
    request: bytes


class PlanAnswers:
    """Answers that are one page which nothing follows: where folding began makes no difference to them. Thread-safe."""

    def __init__(self, bytes_max: int = ANSWERS_BYTES) -> None:
        self._kept: ByteLru[_Name, Encoded] = ByteLru(
            bytes_max, lambda answer: len(answer.data) + REQUEST_BYTES_MAX + _ENTRY_BYTES
        )

    def find(self, found: Reference, request: snapshot_pb2.PlanFilesRequest) -> Encoded | None:
        """Of a request of up to REQUEST_BYTES_MAX without a page token."""
        return self._kept.get(_name(found, request))

    def keep(
        self, found: Reference, request: snapshot_pb2.PlanFilesRequest, response: snapshot_pb2.PlanFilesResponse
    ) -> None:
        """Not if it is large, or a page among others."""
        if is_small(request) and not response.next_page_token and response.ByteSize() <= ANSWER_BYTES_MAX:
            self._kept.put(_name(found, request), Encoded(response.SerializeToString()))


def is_short(request: snapshot_pb2.PlanFilesRequest) -> bool:
    """Whether the plan's size alone decides how long its answer takes."""
    few = len(request.statistics_columns) <= _QUICK_STATISTICS_MAX
    return few and request.encoding != snapshot_pb2.PROTOBUF and request.HasField("predicate")


def is_small(request: snapshot_pb2.PlanFilesRequest) -> bool:
    """Whether its answer may have been kept."""
    return not request.page_token and request.ByteSize() <= REQUEST_BYTES_MAX


def _name(found: Reference, request: snapshot_pb2.PlanFilesRequest) -> _Name:
    table, version = found.table, found.version
    return _Name(
        table.table_id,
        found.lineage.owner(version),
        version,
        table.record.location,
        request.SerializeToString(deterministic=True),
    )
