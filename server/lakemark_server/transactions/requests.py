"""What clients ask for and what they are told, and what is checked before any of it is looked at."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from lakemark_core.errors import InvalidArgument, LimitExceeded
from lakemark_proto.store.v1.transactions_pb2 import LockRecord, TransactionRecord
from lakemark_server.transactions import limits
from lakemark_server.transactions.conflicts import Block, Component, Place, Queued

_SEED_MAX: Final = 1 << 55


class LockState(Enum):
    """What became of a lock that was asked for. NOT_ACQUIRED: it is not there, since it was not to wait."""

    ACQUIRED = 1
    WAITING = 2
    NOT_ACQUIRED = 4


class Client(NamedTuple):
    """What a client says of itself. Long texts are cut."""

    user: str
    host: str
    agent: str = ""

    def cut(self) -> Client:
        """As it is kept."""
        return Client(*(text[: limits.TEXT_CHARS_MAX] for text in self))


@dataclass(frozen=True, slots=True)
class LockRequest:
    """What a client asks for. All of ``components`` are acquired at once.

    ``transaction_id``: the lock is freed when that ends; 0: by ``unlock``. ``targets``: where the transaction updates
    or deletes rows. ``reads_wait`` and ``writes_wait``: whether the lock waits if it cannot have what it is to share or
    to have alone.
    """

    components: Sequence[Component]
    client: Client
    transaction_id: int = 0
    targets: Collection[Place] = ()
    reads_wait: bool = True
    writes_wait: bool = True


class LockAnswer(NamedTuple):
    """``blocked_by``: the lock for which it waits."""

    lock_id: int
    state: LockState
    blocked_by: Block | None = None


class ShownLock(NamedTuple):
    """A component of a lock, as ``number`` of it, and what it waits for. ``beat_ms``: of a lock without transaction."""

    lock_id: int
    number: int
    component: Component
    record: LockRecord
    beat_ms: int
    blocked_by: Queued | None


class ShownTransaction(NamedTuple):
    """A transaction that is open or ``aborted``."""

    id: int
    aborted: bool
    record: TransactionRecord
    beat_ms: int


class OpenTransactions(NamedTuple):
    """All that are open or aborted, in order of id, at one moment."""

    high_water_mark: int
    transactions: list[ShownTransaction]


def check_components(components: Sequence[Component]) -> None:
    """Raises InvalidArgument, LimitExceeded."""
    if not components:
        raise InvalidArgument("the request names nothing to lock; name a database, a table or a partition")
    check_number("things to lock", len(components), limits.COMPONENTS_OF_LOCK_MAX)
    for component in components:
        check_place(component.place)
    check_size("lock", 0, components)


def check_size(what: str, before_bytes: int, components: Iterable[Component]) -> None:
    """Raises LimitExceeded if what is locked already and this are too much to be freed at once."""
    size_bytes = before_bytes + sum(component.place.size_bytes for component in components)
    if size_bytes > limits.LOCK_BYTES_MAX:
        raise LimitExceeded(
            f"the names of all that the {what} would be on take {size_bytes:,} bytes; at most "
            f"{limits.LOCK_BYTES_MAX:,}: lock whole tables instead of partitions"
        )


def check_place(place: Place) -> None:
    """Raises InvalidArgument."""
    if not place.database or (place.partition and not place.table):
        raise InvalidArgument(f"{place} names no database, table or partition")
    if max(map(len, place[:3])) > limits.NAME_CHARS_MAX or len(place.partition) > limits.PARTITION_CHARS_MAX:
        raise InvalidArgument(
            f"a name is too long: databases and tables may have {limits.NAME_CHARS_MAX} characters, names of "
            f"partitions {limits.PARTITION_CHARS_MAX}"
        )


def check_number(what: str, number: int, allowed: int) -> None:
    """Raises LimitExceeded."""
    if number > allowed:
        raise LimitExceeded(f"the request names {number:,} {what}; at most {allowed:,}: divide it")


def check_seed(number: int) -> None:
    """Raises InvalidArgument."""
    if not 0 <= number <= _SEED_MAX:
        raise InvalidArgument(f"{number} is out of range; ids are numbers from 0 to {_SEED_MAX}")
