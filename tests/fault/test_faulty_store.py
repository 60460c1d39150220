"""The domains on a store that fails: nothing partial, nothing twice, nothing lost, whatever the seed.

``LAKEMARK_FAULT_SEEDS=500`` tries more seeds, ``LAKEMARK_FAULT_SEED=17`` only that one, which repeats exactly.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark_core.errors import Unavailable
from lakemark_server.kv import CommitUnknownResult, Conflict, OpenTransaction, Store, TransactionTooOld, open_store
from lakemark_server.timeline.instants import staging
from lakemark_server.verify import verify
from tests.event_replay import replay_problems
from tests.fault.faulty_world import World
from tests.faulty_store import Crashed, Faults, FaultyStore, Rates
from tests.stores import store_url

STEPS = 60
# The error that a fault raises, and whether the commit happens nevertheless.
COMMITS: dict[str, tuple[type[BaseException], bool]] = {
    "conflict": (Conflict, False),
    "expired": (TransactionTooOld, False),
    "disk_full": (Unavailable, False),
    "unknown_lost": (CommitUnknownResult, False),
    "unknown_done": (CommitUnknownResult, True),
    "crash_before": (Crashed, False),
    "crash_after": (Crashed, True),
}
READS: dict[str, type[BaseException]] = {
    "unavailable": Unavailable,
    "too_old": TransactionTooOld,
    "crash_reading": Crashed,
}
RATES = (0.02, 0.05, 0.12)


def seeds() -> list[int]:
    if only := os.environ.get("LAKEMARK_FAULT_SEED"):
        return [int(only)]
    return list(range(int(os.environ.get("LAKEMARK_FAULT_SEEDS", "30"))))


def play(directory: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> World:
    """One world from beginning to end. An AssertionError names the seed and the last steps.

    With every other seed, even a commit of one file is staged before it is published, in several transactions, like one
    of a hundred thousand files.
    """
    directory.mkdir(exist_ok=True)
    inline = seed % 2 == 0
    monkeypatch.setattr(staging, "INLINE_BYTES_MAX", 30_000 if inline else 0)
    monkeypatch.setattr(staging, "TRANSACTION_BYTES_AIM", 300)
    store = open_store(store_url(directory))
    world = World(store, directory, seed, RATES[seed % len(RATES)], inline)
    try:
        world.run(STEPS)
        assert verify(store) + replay_problems(store) == []
    except AssertionError as error:
        story = "\n".join(world.story[-15:])
        raise AssertionError(f"LAKEMARK_FAULT_SEED={seed}: {error}\n{story}\n{world.faults.hits[-10:]}") from error
    finally:
        store.close()
    return world


@pytest.mark.parametrize("seed", seeds())
def test_any_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    play(tmp_path, monkeypatch, seed)


def test_a_seed_repeats_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (play(tmp_path / name, monkeypatch, 4) for name in ("one", "other"))
    assert one.story == other.story
    assert one.faults.hits == other.faults.hits
    assert len(one.faults.counts()) > 5, "hardly any fault was tried"


@pytest.fixture
def inner(tmp_path: Path) -> Iterator[Store]:
    store = open_store(store_url(tmp_path))
    yield store
    store.close()


def written(store: Store) -> OpenTransaction:
    tx = store.begin()
    tx.set(b"a", b"1")
    return tx


@pytest.mark.parametrize("kind", COMMITS)
def test_each_fault_of_a_commit(inner: Store, kind: str) -> None:
    error, applied = COMMITS[kind]
    store = FaultyStore(inner, Faults(1, Rates(**{kind: 1.0})))
    with pytest.raises(error):
        written(store).commit()
    assert inner.read(lambda tx: tx.get(b"a")) == (b"1" if applied else None)


@pytest.mark.parametrize("kind", READS)
def test_each_fault_of_a_read(inner: Store, kind: str) -> None:
    store = FaultyStore(inner, Faults(1, Rates(**{kind: 1.0})))
    with pytest.raises(READS[kind]):
        store.read(lambda tx: tx.get(b"a"))


def test_the_dead_stay_dead_until_the_store_is_opened_again(inner: Store) -> None:
    store = FaultyStore(inner, Faults(1, Rates()))
    old = written(store)
    store.crash()
    with pytest.raises(Crashed):
        store.read(lambda tx: tx.get(b"a"))
    store.reopen()
    assert store.read(lambda tx: tx.get(b"a")) is None
    with pytest.raises(Crashed):
        old.commit()
    old.cancel()
    store.transact(lambda tx: tx.set(b"a", b"2"))
    assert inner.read(lambda tx: tx.get(b"a")) == b"2"
