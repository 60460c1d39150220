"""Which locks exclude each other, and who waits for whom. Pure.

The table is that of Hive 4:

================  ===========  ============  ==========  =========
held / asked for  SHARED_READ  SHARED_WRITE  EXCL_WRITE  EXCLUSIVE
================  ===========  ============  ==========  =========
SHARED_READ       +            +             +           -
SHARED_WRITE      +            +             -           -
EXCL_WRITE        +            -             -           -
EXCLUSIVE         -            -             -           -
================  ===========  ============  ==========  =========

Locks wait in the order in which they came: a lock waits for every earlier one that excludes it, whether that has been
acquired or waits, too. So nobody is overtaken, and nobody waits for a later lock: there are no deadlocks between locks
that are asked for at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple


class LockType(IntEnum):
    """As numbered by Hive. SHARED_WRITE is also called semi-shared."""

    SHARED_READ = 1
    SHARED_WRITE = 2
    EXCLUSIVE = 3
    EXCL_WRITE = 4


EXCLUDES: Final[dict[LockType, frozenset[LockType]]] = {
    LockType.SHARED_READ: frozenset({LockType.EXCLUSIVE}),
    LockType.SHARED_WRITE: frozenset({LockType.EXCL_WRITE, LockType.EXCLUSIVE}),
    LockType.EXCL_WRITE: frozenset({LockType.SHARED_WRITE, LockType.EXCL_WRITE, LockType.EXCLUSIVE}),
    LockType.EXCLUSIVE: frozenset(LockType),
}
"""Symmetric."""


_KEY_BYTES: Final = 40


class Place(NamedTuple):
    """What is locked: a database, a table (``table`` is not empty), or a partition (neither is ``partition``)."""

    catalog: str
    database: str
    table: str = ""
    partition: str = ""

    @property
    def above(self) -> Iterator[Place]:
        """The table and the database that it is in, without itself."""
        if self.partition:
            yield self._replace(partition="")
        if self.table:
            yield Place(self.catalog, self.database)

    @property
    def size_bytes(self) -> int:
        """About what a key takes that has it."""
        return _KEY_BYTES + sum(len(name.encode()) + name.count("\0") for name in self)

    def overlaps(self, other: Place) -> bool:
        """Whether one of them is the other, or contains it."""
        if (self.catalog, self.database) != (other.catalog, other.database):
            return False
        if not self.table or not other.table:
            return True
        return self.table == other.table and (
            not self.partition or not other.partition or self.partition == other.partition
        )


class Component(NamedTuple):
    """One of the things that a lock is on."""

    place: Place
    type: LockType


class Queued(NamedTuple):
    """A component of a lock that is acquired or waits. ``transaction_id``: 0 if the lock belongs to none."""

    component: Component
    position: int
    lock_id: int
    number: int
    transaction_id: int


class Block(NamedTuple):
    """The component ``number`` of a lock waits for ``by``."""

    number: int
    by: Queued


def _comes_after(position: int, lock_id: int, transaction_id: int, other: Queued) -> bool:
    """Whether a lock waits for another one that excludes it: one that is earlier, of no or another transaction.

    Locks at the same position overlap only if one of them came with a table that was renamed; then their ids decide.
    """
    earlier = (other.position, other.lock_id) < (position, lock_id)
    return earlier and not (transaction_id and other.transaction_id == transaction_id)


def exclude(one: Component, other: Component) -> bool:
    """Whether two transactions may not hold both at once. Symmetric."""
    if other.type not in EXCLUDES[one.type] or not one.place.overlaps(other.place):
        return False
    # Who reads a database only wants it to stay: tables of it may be dropped meanwhile.
    return not (_reads_database(one, other) or _reads_database(other, one))


def _reads_database(reader: Component, other: Component) -> bool:
    return reader.type is LockType.SHARED_READ and not reader.place.table and bool(other.place.table)


def next_position(queued: Iterable[Queued]) -> int:
    """The position of a lock that comes now, if these are all that overlap with it."""
    return 1 + max((one.position for one in queued), default=0)


class Asked:
    """The components of a lock that is to be acquired, found by place, so that long queues are read once."""

    def __init__(self, components: Sequence[Component], transaction_id: int) -> None:
        self.components = components
        self.transaction_id = transaction_id
        # Of components of one type at or inside one place, one stands for all.
        self._at: defaultdict[Place, dict[LockType, int]] = defaultdict(dict)
        self._inside: defaultdict[Place, dict[LockType, int]] = defaultdict(dict)
        for number, (place, lock_type) in enumerate(components):
            self._at[place].setdefault(lock_type, number)
            for above in place.above:
                self._inside[above].setdefault(lock_type, number)

    def blocks(self, position: int, lock_id: int, queued: Iterable[Queued]) -> Iterator[Block]:
        """What the lock waits for: earlier locks that exclude it, of no or another transaction."""
        for one in queued:
            if not _comes_after(position, lock_id, self.transaction_id, one):
                continue
            number = self._excluded_by(one.component)
            if number is not None:
                yield Block(number, one)

    def _excluded_by(self, other: Component) -> int | None:
        candidates = [self._at.get(place) for place in (other.place, *other.place.above)]
        for numbers in (*candidates, self._inside.get(other.place)):
            for number in (numbers or {}).values():
                if exclude(self.components[number], other):
                    return number
        return None


class Queues:
    """Queued components by place, so that many locks are asked what they wait for, and the queues are read once."""

    def __init__(self, queued: Iterable[Queued]) -> None:
        self._at: defaultdict[Place, list[Queued]] = defaultdict(list)
        self._inside: defaultdict[Place, list[Queued]] = defaultdict(list)
        for one in queued:
            place = one.component.place
            self._at[place].append(one)
            for around in (place, *place.above):
                self._inside[around].append(one)

    def first_in_the_way(self, asked: Queued) -> Queued | None:
        """The first, as the queues are ordered, of those for which this component waits (see ``Asked.blocks``)."""
        place = asked.component.place
        for some in (*(self._at.get(above) for above in reversed([*place.above])), self._inside.get(place)):
            for one in some or ():
                after = _comes_after(asked.position, asked.lock_id, asked.transaction_id, one)
                if after and exclude(asked.component, one.component):
                    return one
        return None
