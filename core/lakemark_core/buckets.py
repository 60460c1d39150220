"""The hash of a row's key, by which its bucket is found: Spark's ``hash(column, …)``. Pure.

That is Murmur3 (x86, 32 bits) with seed 42, in the form that Spark's own bucketed tables have: the hash of one column
is the seed of the next, and the last bytes of a text or of bytes are mixed in one by one. Writers compute it in Spark;
here it is computed for the few values that a predicate names. ``docs/keyed-tables.md`` has the definition.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from math import prod
from typing import Any, Final

from lakemark_core.expressions import And, Compare, Expr, In, Or
from lakemark_core.table_kind import TableKind
from lakemark_core.types import CODECS, INTEGER_BITS, ColumnValue, Decimal, Field, Schema, ValueKind

SEED: Final = 42

KEYS_MAX: Final = 1_000
"""So many keys of one predicate are hashed; a predicate with more of them is not pruned by bucket."""

_BITS: Final = 0xFFFFFFFF
_LONG_DECIMAL_DIGITS: Final = 18
"""Decimals of so many digits are hashed as one number."""


def hash_of_key(values: Sequence[ColumnValue], fields: Sequence[Field]) -> int:
    """Spark's ``hash`` of a key: ``values`` are those of the columns ``fields``, of their types. A null changes
    nothing."""
    seed = SEED
    for value, field in zip(values, fields, strict=True):
        if value is not None:
            seed = hash_of_value(value, field, seed)
    return seed - (1 << 32) if seed & 0x80000000 else seed


def hash_of_value(value: ColumnValue, field: Field, seed: int) -> int:
    """The hash of one column's value, which is not null, on top of that of the columns before it; both unsigned."""
    return _HASHES[_kind(field)](value, field, seed)


def buckets_of(predicate: Expr, kind: TableKind, schema: Schema) -> frozenset[int] | None:
    """The buckets in which there may be rows that the predicate selects; None: it says nothing of them.

    ``predicate`` is bound to ``schema`` and normalized.
    """
    return _named(predicate, kind.bucket_fields(schema), kind) if kind.buckets else None


def _named(predicate: Expr, fields: Sequence[Field], kind: TableKind) -> frozenset[int] | None:
    match predicate:
        case Or(terms):
            parts = [_named(term, fields, kind) for term in terms]
            known = [part for part in parts if part is not None]
            return frozenset().union(*known) if len(known) == len(parts) else None
        case And(terms):
            parts = [_named(term, fields, kind) for term in terms]
            known = [*(part for part in parts if part is not None), *_of_keys(terms, fields, kind)]
            return frozenset.intersection(*known) if known else None
        case _:
            return next(_of_keys([predicate], fields, kind), None)


def _of_keys(terms: Iterable[Expr], fields: Sequence[Field], kind: TableKind) -> Iterator[frozenset[int]]:
    """The buckets of the keys that conditions name, all of which hold, if they name a value for each column."""
    values: dict[int, list[ColumnValue]] = {}
    for term in terms:
        match term:
            case Compare("=" | "<=>", column, literal):
                values.setdefault(column.id, [literal.value])
            case In(column, literals, False):
                values.setdefault(column.id, [literal.value for literal in literals])
    named = [values[field.id] for field in fields if field.id in values]
    if len(named) == len(fields) and prod(map(len, named)) <= KEYS_MAX:
        yield frozenset(chain.from_iterable(kind.buckets_of(hash_of_key(key, fields)) for key in product(*named)))


def _of_int(number: int, seed: int) -> int:
    return _finished(_mixed(seed, number & _BITS), 4)


def _of_long(number: int, seed: int) -> int:
    return _finished(_mixed(_mixed(seed, number & _BITS), (number >> 32) & _BITS), 8)


def _of_bytes(data: bytes, seed: int) -> int:
    whole = len(data) & ~3
    words = (word for (word,) in struct.iter_unpack("<I", data[:whole]))
    rest = (byte & _BITS for byte in struct.unpack(f"{len(data) - whole}b", data[whole:]))
    for word in chain(words, rest):
        seed = _mixed(seed, word)
    return _finished(seed, len(data))


def _mixed(seed: int, word: int) -> int:
    word = _rotated(word * 0xCC9E2D51 & _BITS, 15) * 0x1B873593 & _BITS
    return (_rotated(seed ^ word, 13) * 5 + 0xE6546B64) & _BITS


def _finished(seed: int, length: int) -> int:
    seed ^= length
    seed = (seed ^ seed >> 16) * 0x85EBCA6B & _BITS
    seed = (seed ^ seed >> 13) * 0xC2B2AE35 & _BITS
    return seed ^ seed >> 16


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _BITS


def _kind(field: Field) -> ValueKind:
    if field.type.kind is None:  # no column of a key is nested
        raise TypeError(field.type)
    return field.type.kind


def _integer(value: Any, field: Field, seed: int) -> int:
    return _of_long(value, seed) if INTEGER_BITS[field.type] > 32 else _of_int(value, seed)


def _decimal(value: Any, field: Field, seed: int) -> int:
    if not isinstance(field.type, Decimal):  # of this kind there is no other type
        raise TypeError(field.type)
    with decimal.localcontext(prec=100):
        unscaled = int(decimal.Decimal(value).scaleb(field.type.scale))
    if field.type.precision <= _LONG_DECIMAL_DIGITS:
        return _of_long(unscaled, seed)
    # As Java writes a BigInteger: the fewest bytes that hold it with its sign.
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return _of_bytes(unscaled.to_bytes(length, "big", signed=True), seed)


def _moment(value: Any, field: Field, seed: int) -> int:
    since = CODECS[_kind(field)].to_plain(value)
    return _of_int(int(since), seed) if field.type.kind is ValueKind.DATE else _of_long(int(since), seed)


_HASHES: Final[Mapping[ValueKind, Callable[[Any, Field, int], int]]] = {
    ValueKind.BOOLEAN: lambda value, _, seed: _of_int(int(value), seed),
    ValueKind.INTEGER: _integer,
    ValueKind.TEXT: lambda value, _, seed: _of_bytes(value.encode(errors="surrogatepass"), seed),
    ValueKind.BINARY: lambda value, _, seed: _of_bytes(bytes(value), seed),
    ValueKind.DECIMAL: _decimal,
    ValueKind.DATE: _moment,
    ValueKind.TIMESTAMP: _moment,
    ValueKind.TIMESTAMP_NTZ: _moment,
}
