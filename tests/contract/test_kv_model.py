"""Two interleaved transactions against a sorted dict: what they read, what their commits leave, when they may fail."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from lakemark_server.kv import Conflict, OpenTransaction, Store
from lakemark_server.kv.api import KEYS_END
from tests.lengths import long, slow

State = dict[bytes, bytes]

# Few enough to collide, odd enough to catch comparisons that are not by bytes.
KEYS = [b"", b"\0", b"\0\xff", b"a", b"a\0", b"a\xfe", b"aa", b"b", b"ba", b"z", b"\x80", b"\xfe\xff\xff"]
keys = st.sampled_from(KEYS)
bounds = st.sampled_from([*KEYS, b"a\xff", b"c", KEYS_END])
ranges = st.tuples(bounds, bounds).map(lambda pair: (min(pair), max(pair)))
values = st.binary(max_size=9)
deltas = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3)
which = st.integers(0, 1)


def add(value: bytes | None, delta: int) -> bytes:
    stored = (value or b"")[:8].ljust(8, b"\0")
    return ((int.from_bytes(stored, "little") + delta) % (1 << 64)).to_bytes(8, "little")


def perform(state: State, step: tuple[Any, ...]) -> Any:
    """One step of a transaction on the model. Reads return values, writes change ``state``."""
    kind, *rest = step
    match kind:
        case "get":
            return state.get(rest[0])
        case "get_many":
            return [state.get(key) for key in rest[0]]
        case "get_range":
            begin, end, limit, reverse = rest
            pairs = sorted(((k, v) for k, v in state.items() if begin <= k < end), reverse=reverse)
            return pairs[: limit or None]
        case "set":
            state[rest[0]] = rest[1]
        case "clear":
            state.pop(rest[0], None)
        case "clear_range":
            for key in [key for key in state if rest[0] <= key < rest[1]]:
                del state[key]
        case "add":
            state[rest[0]] = add(state.get(rest[0]), rest[1])
    return None


@dataclass
class Running:
    """A transaction, what it did and saw, and the widest ranges that it may count as having read or written."""

    handle: OpenTransaction
    base: State | None = None
    commits_seen: int = 0
    log: list[tuple[tuple[Any, ...], Any]] = field(default_factory=list)
    steps: list[tuple[Any, ...]] = field(default_factory=list)
    read: list[tuple[bytes, bytes]] = field(default_factory=list)
    written: list[tuple[bytes, bytes]] = field(default_factory=list)


def single(key: bytes) -> tuple[bytes, bytes]:
    return key, key + b"\0"


def intersect(one: list[tuple[bytes, bytes]], other: list[tuple[bytes, bytes]]) -> bool:
    return any(max(a, c) < min(b, d) for a, b in one for c, d in other)


class Machine(RuleBasedStateMachine):
    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.store.transact(lambda tx: tx.clear_range(b"", KEYS_END))
        self.committed: State = {}
        self.writes: list[list[tuple[bytes, bytes]]] = []
        self.running: dict[int, Running] = {}

    def get_running(self, number: int) -> Running:
        if number not in self.running:
            self.running[number] = Running(self.store.begin())
        return self.running[number]

    def do_read(self, number: int, step: tuple[Any, ...], covers: list[tuple[bytes, bytes]], snapshot: bool) -> None:
        running = self.get_running(number)
        kind, *rest = step
        if kind == "get_range":
            begin, end, limit, reverse = rest
            seen = running.handle.get_range(begin, end, limit=limit, reverse=reverse, snapshot=snapshot)
        else:
            seen = getattr(running.handle, kind)(rest[0], snapshot=snapshot)
        if running.base is None:
            # In some stores a read of own writes takes no snapshot yet; any state gives the same value then.
            running.base, running.commits_seen = dict(self.committed), len(self.writes)
        state = dict(running.base)
        for earlier in running.steps:
            perform(state, earlier)
        assert seen == perform(state, step)
        if not snapshot:
            running.read += covers
            running.log.append((step, seen))

    def do_write(self, number: int, step: tuple[Any, ...], covers: tuple[bytes, bytes]) -> None:
        running = self.get_running(number)
        kind, *rest = step
        getattr(running.handle, kind)(*rest)
        running.steps.append(step)
        running.log.append((step, None))
        if covers[0] < covers[1]:  # an empty span is not a write, and a transaction without writes always commits
            running.written.append(covers)

    @rule(number=which, key=keys, snapshot=st.booleans())
    def get(self, number: int, key: bytes, snapshot: bool) -> None:
        self.pin(number)
        self.do_read(number, ("get", key), [single(key)], snapshot)

    @rule(number=which, some=st.lists(keys, max_size=5), snapshot=st.booleans())
    def get_many(self, number: int, some: list[bytes], snapshot: bool) -> None:
        self.pin(number)
        self.do_read(number, ("get_many", some), [single(key) for key in some], snapshot)

    @rule(number=which, span=ranges, limit=st.integers(0, 4), reverse=st.booleans(), snapshot=st.booleans())
    def get_range(self, number: int, span: tuple[bytes, bytes], limit: int, reverse: bool, snapshot: bool) -> None:
        self.pin(number)
        self.do_read(number, ("get_range", *span, limit, reverse), [span], snapshot)

    def pin(self, number: int) -> None:
        """An empty conflict range takes the snapshot, so that the model knows which state is read."""
        running = self.get_running(number)
        if running.base is None:
            running.handle.add_read_conflict(b"", b"")
            running.base, running.commits_seen = dict(self.committed), len(self.writes)

    @rule(number=which, key=keys, value=values)
    def set(self, number: int, key: bytes, value: bytes) -> None:
        self.do_write(number, ("set", key, value), single(key))

    @rule(number=which, key=keys)
    def clear(self, number: int, key: bytes) -> None:
        self.do_write(number, ("clear", key), single(key))

    @rule(number=which, span=ranges)
    def clear_range(self, number: int, span: tuple[bytes, bytes]) -> None:
        self.do_write(number, ("clear_range", *span), span)

    @rule(number=which, key=keys, delta=deltas)
    def add(self, number: int, key: bytes, delta: int) -> None:
        self.do_write(number, ("add", key, delta), single(key))

    @precondition(lambda self: self.running)
    @rule(number=which)
    def commit(self, number: int) -> None:
        running = self.running.pop(number, None)
        if running is None:
            return
        since = [span for written in self.writes[running.commits_seen :] for span in written]
        try:
            running.handle.commit()
        except Conflict:
            assert running.written, "a transaction without writes was refused"
            assert intersect(running.read, since), "refused although nobody wrote what it read"
            return
        if running.written:
            # As if it had run alone, now: every read that counts returns the same.
            for step, seen in running.log:
                assert perform(self.committed, step) == seen
            self.writes.append(running.written)

    @precondition(lambda self: self.running)
    @rule(number=which)
    def cancel(self, number: int) -> None:
        running = self.running.pop(number, None)
        if running is not None:
            running.handle.cancel()

    @invariant()
    def everyone_else_sees_the_committed_state(self) -> None:
        assert self.store.read(lambda tx: tx.get_range(b"", KEYS_END)) == sorted(self.committed.items())

    def teardown(self) -> None:
        for running in self.running.values():
            running.handle.cancel()


def test_a_transaction_that_clears_only_an_empty_span_writes_nothing(store: Store) -> None:
    machine = bound(store)()
    machine.get_range(1, (b"", b"\0"), 0, reverse=False, snapshot=False)
    machine.set(0, b"", b"")
    machine.commit(0)
    machine.clear_range(1, (b"", b""))
    machine.commit(1)  # others wrote what it read, so it would be refused if it had writes
    machine.everyone_else_sees_the_committed_state()
    machine.teardown()


def bound(store: Store) -> type[Machine]:
    return type("BoundMachine", (Machine,), {"store": store})


@pytest.mark.parametrize(
    ("examples", "steps"),
    [(120, 40), pytest.param(long(1_000), 80, marks=slow(1_200))],
    ids=["quick", "long"],
)
def test_interleaved_transactions_behave_like_a_sorted_dict(store: Store, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        bound(store),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
