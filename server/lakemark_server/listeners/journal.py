"""What the runner of a listener writes down, under its lease: state, problems, and digests of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lakemark_proto.v1 import listeners_pb2 as pb
from lakemark_server.context.clock import ClockMs
from lakemark_server.kv import Store, Transaction, keys_below
from lakemark_server.store.keyspace import LISTENER_FUNCTIONS, LISTENER_PROBLEMS, LISTENER_STATES, LISTENERS


class Journal:
    """Of one listener. ``store`` is fenced by the lease of its consumer. Not thread-safe."""

    def __init__(self, store: Store, clock: ClockMs, catalog: str, name: str) -> None:
        self._store, self._clock = store, clock
        self._place = (catalog, name)
        stored = store.read(lambda tx: tx.get(LISTENER_STATES.key(catalog, name)))
        self.state = pb.ListenerState.FromString(stored or b"")
        self._known: dict[tuple[str, str], pb.ListenerDifference] = {}
        for (kind, label), value in keys_below(store, LISTENER_PROBLEMS, *self._place):
            self._known[str(kind), str(label)] = pb.ListenerDifference.FromString(value)

    def note(self, difference: pb.ListenerDifference) -> None:
        """Counts repairs, keeps what stays different, and forgets what is as it should be."""
        now = self._clock()
        if difference.state == pb.DIFFERENCE_REPAIRED:
            self.state.repaired += 1
            self.state.last_repaired_ms = now
            if difference.kind == "partition":  # some of a table's; what is wrong with others stays so
                return
        key = (difference.kind, difference.name)
        known = self._known.get(key)
        if difference.state not in (pb.DIFFERENCE_LEFT, pb.DIFFERENCE_FAILED):
            if known is not None:
                del self._known[key]
                self._write(lambda tx: tx.clear(LISTENER_PROBLEMS.key(*self._place, *key)))
            return
        if known is not None and (known.state, known.reason) == (difference.state, difference.reason):
            return
        difference.since_ms = known.since_ms if known is not None else now
        self._known[key] = difference
        self._write(lambda tx: tx.set(LISTENER_PROBLEMS.key(*self._place, *key), difference.SerializeToString()))

    def tell(self) -> None:
        """Writes the state."""
        self._write(lambda tx: tx.set(LISTENER_STATES.key(*self._place), self.state.SerializeToString()))

    def repaired(self, asked: int) -> None:
        """Everything was compared and repaired, as was asked up to then; what was to be overwritten is."""

        def body(tx: Transaction) -> None:
            key = LISTENERS.key(*self._place)
            stored = tx.get(key)
            if stored is not None:
                listener = pb.Listener.FromString(stored)
                if listener.repairs_asked == asked and listener.overwrites:
                    del listener.overwrites[:]
                    tx.set(key, listener.SerializeToString())
            tx.set(LISTENER_STATES.key(*self._place), self.state.SerializeToString())

        self.state.repairs_done = asked
        self.state.compared_ms = self._clock()
        self._store.transact(body)

    # -- digests of functions -----------------------------------------------------------------------------------------

    def get(self, database: str, name: str) -> str | None:
        """The digest that was remembered."""
        stored = self._store.read(lambda tx: tx.get(LISTENER_FUNCTIONS.key(*self._place, database, name)))
        return None if stored is None else stored.decode()

    def put(self, database: str, name: str, digest: str | None) -> None:
        """Remembers a digest; None: forgets it."""
        key = LISTENER_FUNCTIONS.key(*self._place, database, name)
        self._write(lambda tx: tx.clear(key) if digest is None else tx.set(key, digest.encode()))

    def names(self) -> Iterator[tuple[str, str]]:
        """The functions whose digests are remembered, as database and name."""
        for (database, name), _ in keys_below(self._store, LISTENER_FUNCTIONS, *self._place):
            yield str(database), str(name)

    def _write(self, body: Callable[[Transaction], None]) -> None:
        self._store.transact(body)
