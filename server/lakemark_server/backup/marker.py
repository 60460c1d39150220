"""The marker of a store that is being restored. While a store has one, it must not be served."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from lakemark_core.errors import CorruptStore
from lakemark_server.kv import ReadTransaction, Store, Transaction
from lakemark_server.store.keyspace import RESTORING

from .errors import HalfRestored

KEY = RESTORING.key()


@dataclass(frozen=True, slots=True)
class Marker:
    """The backup that is restored, by its id and a hash of its content, and how many of its chunks the store has."""

    backup: str
    content: str
    chunks: int

    def same_backup(self, other: Marker) -> bool:
        return (self.backup, self.content) == (other.backup, other.content)


def get(tx: ReadTransaction) -> Marker | None:
    stored = tx.get(KEY)
    if stored is None:
        return None
    try:
        return Marker(**json.loads(stored))
    except (ValueError, TypeError) as error:
        raise CorruptStore("the marker of a store that is being restored cannot be read") from error


def put(tx: Transaction, marker: Marker) -> None:
    tx.set(KEY, json.dumps(asdict(marker)).encode())


def refuse_half_restored(store: Store) -> None:
    """Raises HalfRestored."""
    marker = store.read(get)
    if marker is not None:
        raise HalfRestored(
            f"the store holds only a part of backup {marker.backup}: restoring it has not ended. Run 'lakemark "
            "restore' again, which goes on where it stopped",
            backup=marker.backup,
        )
