"""Locks, transactions and write ids of two processes against a simple model, with a clock of the test.

The model knows when each lock came and who was heard when. It takes whoever was silent for too long for dead at once;
the service may notice later, but nobody may ever wait for such a one. Dead clients ask nothing more.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lakemark_core.errors import LockNotFound, TransactionAborted, TransactionNotFound, TransactionOpen
from lakemark_server.kv import open_store
from lakemark_server.store.mutations import Mutations
from lakemark_server.transactions import expiry
from lakemark_server.transactions.conflicts import Component, LockType, Place, exclude
from lakemark_server.transactions.limits import TransactionLimits
from lakemark_server.transactions.requests import Client, LockRequest, LockState
from lakemark_server.transactions.service import Transactions
from lakemark_server.transactions.visibility import ValidWriteIds
from lakemark_server.transactions.write_ids import TableKey
from lakemark_server.verify import verify
from tests.lakes import Clock
from tests.stores import store_url

TIMEOUT_MS = 1_000
KEPT_MS = 3_000
ME = Client("u", "h")
TABLES = [TableKey("hive", "d", "t"), TableKey("hive", "d", "u")]

_numbers = itertools.count()

places = st.sampled_from(
    [
        Place("hive", "d"),
        Place("hive", "d", "t"),
        Place("hive", "d", "t", "p=1"),
        Place("hive", "d", "t", "p=2"),
        Place("hive", "d", "u"),
        Place("hive", "e"),
    ]
)
components = st.builds(Component, places, st.sampled_from(LockType))


@dataclass
class ModelLock:
    number: int  # in the order in which they came
    components: Sequence[Component]
    transaction: int
    beat_ms: int
    acquired: bool = False


@dataclass
class ModelTransaction:
    beat_ms: int
    state: str = "open"
    read_only: bool = False
    write_ids: dict[TableKey, int] = field(default_factory=dict)


class LocksMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        place = Path(self._directory.name, str(next(_numbers)))
        place.mkdir()
        self.store, self.clock = open_store(store_url(place)), Clock()
        self.limits = TransactionLimits(timeout_ms=TIMEOUT_MS, kept_ms=KEPT_MS)
        self.mutations = Mutations(self.store, self.clock)
        self.processes = [Transactions(self.mutations, self.limits) for _ in range(2)]
        self.turn = 0
        self.locks: dict[int, ModelLock] = {}
        self.transactions: dict[int, ModelTransaction] = {}
        self.last: dict[TableKey, int] = dict.fromkeys(TABLES, 0)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            assert verify(self.store) == []
            self.clock.advance(10 * KEPT_MS)
            for _ in range(3):  # each looks at things that are due; what is forgotten may be found due a round later
                expiry.sweep(self.mutations, self.limits)
                self.clock.advance(10 * KEPT_MS)
            assert not list(self.one.locks.shown())
            assert not [one for one in self.one.registry.open_transactions().transactions if not one.aborted]
            assert verify(self.store) == []
            self.store.close()
            self._directory.cleanup()

    @property
    def one(self) -> Transactions:
        """One of the processes, in turns."""
        self.turn += 1
        return self.processes[self.turn % 2]

    # -- the model ----------------------------------------------------------------------------------------------------

    def _lives(self, lock: ModelLock) -> bool:
        beat_ms = self.transactions[lock.transaction].beat_ms if lock.transaction else lock.beat_ms
        return beat_ms + TIMEOUT_MS > self.clock()

    def _open(self) -> list[int]:
        """Transactions whose clients are heard."""
        now = self.clock()
        return [i for i, one in self.transactions.items() if one.state == "open" and one.beat_ms + TIMEOUT_MS > now]

    def _living(self) -> list[int]:
        return [i for i, lock in self.locks.items() if self._lives(lock)]

    def _is_blocked(self, lock: ModelLock) -> bool:
        return any(
            other.number < lock.number
            and self._lives(other)
            and not (lock.transaction and lock.transaction == other.transaction)
            and any(exclude(mine, theirs) for mine in lock.components for theirs in other.components)
            for other in self.locks.values()
        )

    def _end(self, transaction_id: int, state: str) -> None:
        self.transactions[transaction_id].state = state
        self.locks = {i: lock for i, lock in self.locks.items() if lock.transaction != transaction_id}

    # -- locks --------------------------------------------------------------------------------------------------------

    @rule(asked=st.lists(components, min_size=1, max_size=3), with_transaction=st.booleans(), at=st.integers(0, 9))
    def lock(self, asked: list[Component], with_transaction: bool, at: int) -> None:
        open_ids = self._open()
        transaction_id = open_ids[at % len(open_ids)] if with_transaction and open_ids else 0
        answer = self.one.locks.lock(LockRequest(asked, ME, transaction_id))
        made = ModelLock(next(_numbers), asked, transaction_id, self.clock())
        if transaction_id:
            self.transactions[transaction_id].beat_ms = self.clock()
        made.acquired = not self._is_blocked(made)
        assert (answer.state is LockState.ACQUIRED) == made.acquired
        assert answer.lock_id not in self.locks
        self.locks[answer.lock_id] = made

    @rule(at=st.integers(0, 99))
    def check_lock(self, at: int) -> None:
        living = self._living()
        if not living:
            return
        lock_id = living[at % len(living)]
        lock = self.locks[lock_id]
        lock.acquired = lock.acquired or not self._is_blocked(lock)
        answer = self.one.locks.check(lock_id)
        assert (answer.state is LockState.ACQUIRED) == lock.acquired
        # A poll is noted only if the last note is old: the model takes the later time only if that is certain.
        holder = self.transactions[lock.transaction] if lock.transaction else lock
        if self.clock() - holder.beat_ms >= TIMEOUT_MS // 10:
            holder.beat_ms = self.clock()

    @rule(at=st.integers(0, 99))
    def unlock(self, at: int) -> None:
        living = self._living()
        if not living:
            return
        lock_id = living[at % len(living)]
        lock = self.locks[lock_id]
        if lock.transaction and lock.acquired:
            with pytest.raises(TransactionOpen):
                self.one.locks.unlock(lock_id)
            return
        self.one.locks.unlock(lock_id)
        del self.locks[lock_id]
        self.one.locks.unlock(lock_id)  # nothing happens
        with pytest.raises(LockNotFound):
            self.one.locks.check(lock_id)

    @rule(at=st.integers(0, 99))
    def heartbeat(self, at: int) -> None:
        living = self._living()
        if not living:
            return
        lock_id = living[at % len(living)]
        lock = self.locks[lock_id]
        self.one.locks.heartbeat(lock_id, 0)
        holder = self.transactions[lock.transaction] if lock.transaction else lock
        holder.beat_ms = self.clock()

    # -- transactions -------------------------------------------------------------------------------------------------

    @rule(number=st.integers(1, 3), read_only=st.booleans())
    def open(self, number: int, read_only: bool) -> None:
        ids = self.one.registry.open(number, ME, 2 if read_only else 0)
        after = max(self.transactions, default=0)
        assert ids == list(range(after + 1, after + 1 + number))
        for one in ids:
            self.transactions[one] = ModelTransaction(self.clock(), read_only=read_only)

    @rule(at=st.integers(0, 99))
    def commit(self, at: int) -> None:
        if not (open_ids := self._open()):
            return
        transaction_id = open_ids[at % len(open_ids)]
        self.one.registry.commit(transaction_id, first_committer_wins=True)
        self._end(transaction_id, "committed")
        self.one.registry.commit(transaction_id, first_committer_wins=True)  # again: nothing happens
        with pytest.raises(TransactionNotFound, match="already committed"):
            self.one.registry.abort(transaction_id)

    @rule(at=st.integers(0, 99))
    def abort(self, at: int) -> None:
        if not (open_ids := self._open()):
            return
        transaction_id = open_ids[at % len(open_ids)]
        self.one.registry.abort(transaction_id)
        self._end(transaction_id, "aborted")
        self.one.registry.abort(transaction_id)  # again: nothing happens
        with pytest.raises(TransactionAborted):
            self.one.registry.commit(transaction_id, first_committer_wins=True)

    @rule(first=st.integers(1, 9), number=st.integers(1, 5))
    def heartbeat_range(self, first: int, number: int) -> None:
        """Dead ones are left out: whether they are noticed already is not said."""
        ids = [one for one in range(first, first + number) if one in self._open()]
        for one in ids:
            assert self.one.registry.heartbeat_range(one, one) == (set(), set())
            self.transactions[one].beat_ms = self.clock()
        never = max(self.transactions, default=0) + 1
        assert self.one.registry.heartbeat_range(never, never + 1) == (set(), {never, never + 1})

    @rule(ms=st.sampled_from([1, TIMEOUT_MS // 10, TIMEOUT_MS // 2, TIMEOUT_MS - 1, TIMEOUT_MS, KEPT_MS]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)
        for transaction_id, one in list(self.transactions.items()):
            if one.state == "open" and transaction_id not in self._open():
                self._end(transaction_id, "aborted")
        self.locks = {i: lock for i, lock in self.locks.items() if self._lives(lock)}

    @rule()
    def sweep(self) -> None:
        expiry.sweep(self.mutations, self.limits)
        now = self.one.registry.open_transactions(beats=True)
        assert now.high_water_mark == max(self.transactions, default=0)
        assert [one.id for one in now.transactions if not one.aborted] == self._open()
        aborted = {one.id for one in now.transactions if one.aborted}
        assert aborted <= {i for i, one in self.transactions.items() if one.state == "aborted"}
        assert {i for i, one in self.transactions.items() if one.state == "aborted" and one.write_ids} <= aborted

    # -- write ids ----------------------------------------------------------------------------------------------------

    @rule(table=st.sampled_from(TABLES), at=st.integers(0, 99))
    def allocate(self, table: TableKey, at: int) -> None:
        writers = [one for one in self._open() if not self.transactions[one].read_only]
        if not writers:
            return
        transaction_id = writers[at % len(writers)]
        ids = self.transactions[transaction_id].write_ids
        if table not in ids:
            self.last[table] += 1
            ids[table] = self.last[table]
        assert self.one.write_ids.allocate(table, [transaction_id]) == [(transaction_id, ids[table])]

    @rule(table=st.sampled_from(TABLES))
    def valid(self, table: TableKey) -> None:
        expiry.sweep(self.mutations, self.limits)
        (valid,) = self.one.write_ids.valid([table])
        assert valid.high_water_mark == self.last[table] == self.one.write_ids.last(table)
        writers = {one.write_ids[table]: one.state for one in self.transactions.values() if table in one.write_ids}
        invalid = sorted(write_id for write_id, state in writers.items() if state != "committed")
        expected = ValidWriteIds(self.last[table], invalid, [writers[one] == "aborted" for one in invalid])
        assert valid == expected

    # -- always -------------------------------------------------------------------------------------------------------

    @invariant()
    def nobody_holds_what_another_excludes(self) -> None:
        if not hasattr(self, "store"):
            return
        held = [one for one in self.one.locks.shown() if one.record.acquired_ms and one.lock_id in self.locks]
        for one, other in itertools.combinations(held, 2):
            if one.lock_id != other.lock_id:
                mine, theirs = one.record.transaction_id, other.record.transaction_id
                assert (mine and mine == theirs) or not exclude(one.component, other.component)
        assert {one.lock_id for one in held} == {i for i, lock in self.locks.items() if lock.acquired}


LocksMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, Phase.target),
)
TestLocks = LocksMachine.TestCase
