"""Which transactions and write ids a reader sees: the lists of Hive's ValidTxnList and ValidWriteIdList. Pure.

A list is a high-water mark and what is not valid below it: open and aborted ones, in order, with a bit for each that
says whether it is aborted (the first one in the lowest bit of the first byte).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from lakemark_core.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class ValidTransactions:
    """What a reader sees: all transactions up to ``high_water_mark`` that are neither open nor aborted."""

    high_water_mark: int
    open: Collection[int]
    aborted: Collection[int]

    def is_valid(self, transaction_id: int) -> bool:
        """Whether the reader sees what the transaction has written."""
        return (
            transaction_id <= self.high_water_mark
            and transaction_id not in self.open
            and transaction_id not in self.aborted
        )


def parse_valid_transactions(text: str) -> ValidTransactions:
    """Reads ``high water mark:first open:open,…:aborted,…``. Raises InvalidArgument."""
    parts = [*text.split(":"), "", "", ""]
    try:
        lists = [frozenset(map(int, part.split(","))) if part else frozenset[int]() for part in parts[2:4]]
        return ValidTransactions(int(parts[0]), *lists)
    except ValueError as error:
        raise InvalidArgument(
            f"{text[:100]!r} is no list of valid transactions; it looks as 7:3:3,5:4 (high-water mark, first open "
            "one, open ones, aborted ones)"
        ) from error


def seen_by(open_ids: Iterable[int], aborted: Iterable[int], high_water_mark: int, reader: int) -> ValidTransactions:
    """What the transaction ``reader`` sees (0: somebody outside of transactions): also what it has written itself."""
    mark = min(reader, high_water_mark) if reader else high_water_mark
    return ValidTransactions(
        mark,
        frozenset(one for one in open_ids if one <= mark and one != reader),
        frozenset(one for one in aborted if one <= mark),
    )


def bits(flags: Sequence[bool]) -> bytes:
    """As Java's ``BitSet.toByteArray``: without zero bytes at the end."""
    number = sum(1 << at for at, flag in enumerate(flags) if flag)
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


@dataclass(frozen=True, slots=True)
class ValidWriteIds:
    """``invalid``: in ascending order; ``aborted``: for each of them, whether it is aborted, else it is open.

    ``first_open``: the first of them that is open, or None.
    """

    high_water_mark: int
    invalid: Sequence[int]
    aborted: Sequence[bool]

    @property
    def first_open(self) -> int | None:
        return next((one for one, ended in zip(self.invalid, self.aborted, strict=True) if not ended), None)


def valid_write_ids(transactions: ValidTransactions, last: int, kept: Sequence[tuple[int, int]]) -> ValidWriteIds:
    """What a reader with these transactions sees of a table.

    ``last``: the last write id that was allocated. ``kept``: write ids and their transactions, ascending. A write id
    that is not kept was written by a transaction that everybody sees.
    """
    mark = last
    for write_id, transaction_id in reversed(kept):
        if write_id != mark or transaction_id <= transactions.high_water_mark:
            break
        mark -= 1
    invalid = [pair for pair in kept if pair[0] <= mark and not transactions.is_valid(pair[1])]
    return ValidWriteIds(
        mark,
        [write_id for write_id, _ in invalid],
        [transaction_id in transactions.aborted for _, transaction_id in invalid],
    )
