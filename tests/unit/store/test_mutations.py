"""Mutations: a time and a request id for every change, and no way around them."""

from __future__ import annotations

import ast
from collections.abc import Collection
from pathlib import Path

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_proto.store.v1.store_pb2 import DatabaseRecord
from lakemark_server.kv import Conflict, Space, counter
from lakemark_server.store.mutations import Mutation, Mutations, Outcome
from tests.lakes import Lake

SERVER = Path(__file__).parents[3] / "server" / "lakemark_server"
COUNT = Space.of("count")

# Who opens transactions without ``Mutations``: a module, or one function of it, and why.
BOOKKEEPING = {
    "store/mutations.py": "this is the way itself",
    "store/leases.py": "who may write is no change of the lake; a fenced store hands transactions on",
    "store/ids.py": "ranges of ids that a process has taken",
    "store/store_format.py": "the format of a new store",
    "store/requests.py::forget": "answers that nobody asks for any more",
    "catalog/partition_batches.py": "ends batches whose partitions have changed, or takes back what nobody has seen",
    "catalog/directories.py": "directories that are closed while files are deleted or moved",
    "ownership/tenures.py": "closures that are renewed",
    "catalog/left_directories.py": "that such a directory is open again after a process died",
    "catalog/earlier_places.py": "places that everybody has anyway",
    "timeline/instants/staging.py::stage": "blocks that count as staged by a later transaction",
    "snapshots/bases.py": "pages of bases, which show the same versions in another form",
    "maintenance/cleaning/auto_clean.py": "when a table is looked at next",
    "maintenance/cleaning/garbage.py": "files that later cleans look at again",
    "maintenance/cleaning/old_metadata.py": "metadata of versions that have ended, which nobody can read",
    "events/upkeep.py": "marks in the log of events, and events that are too old",
    "listeners/journal.py": "what the runner of a listener has done outside",
    "backup/restoration.py": "a store that nobody uses yet",
}


def _uses(names: Collection[str]) -> set[str]:
    """The functions of the service that use an attribute with one of these names, as "module::class.function"."""
    places = set()

    def visit(module: str, node: ast.AST, path: tuple[str, ...]) -> None:
        if isinstance(node, ast.Attribute) and node.attr in names:
            places.add(f"{module}::{'.'.join(path)}")
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            path = (*path, node.name)
        for child in ast.iter_child_nodes(node):
            visit(module, child, path)

    for source in SERVER.rglob("*.py"):
        if "kv" not in source.parts:
            visit(source.relative_to(SERVER).as_posix(), ast.parse(source.read_text()), ())
    return places


def _is_in(place: str, name: str) -> bool:
    return place == name or place.startswith((f"{name}::", f"{name}."))


def test_only_bookkeeping_opens_transactions_without_mutations() -> None:
    places = _uses({"transact"})
    unlisted = {place for place in places if not any(_is_in(place, name) for name in BOOKKEEPING)}
    assert unlisted == set(), "a change goes through Mutations; bookkeeping is listed here with its reason"
    assert {name for name in BOOKKEEPING if not any(_is_in(place, name) for place in places)} == set()


def test_only_mutations_record_answers() -> None:
    users = {path.relative_to(SERVER).as_posix() for path in SERVER.rglob("*.py") if _records_answers(path)}
    assert users == {"store/mutations.py"}


def _records_answers(path: Path) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in {("requests", "find"), ("requests", "record")}
        for node in ast.walk(ast.parse(path.read_text()))
    )


def _create(mutation: Mutation) -> DatabaseRecord:
    mutation.tx.add(COUNT.key(), 1)
    return DatabaseRecord(name="d", created_ms=mutation.now_ms)


def _count(lake: Lake) -> int:
    return counter(lake.store.read(lambda tx: tx.get(COUNT.key())))


def test_a_repeated_request_gets_the_recorded_answer_and_changes_nothing(lake: Lake) -> None:
    mutations = Mutations(lake.store, lake.clock)
    first = mutations.once("id", "Create d", DatabaseRecord, _create)
    lake.clock.advance(1_000)
    again = mutations.once("id", "Create d", DatabaseRecord, _create)
    assert (first.repeated, again.repeated) == (False, True)
    assert first.answer == again.answer
    assert _count(lake) == 1


def test_without_an_id_every_request_is_a_new_one(lake: Lake) -> None:
    mutations = Mutations(lake.store, lake.clock)
    assert not any(mutations.once("", "Create d", DatabaseRecord, _create).repeated for _ in range(3))
    assert _count(lake) == 3


def test_an_id_belongs_to_one_kind_of_request(lake: Lake) -> None:
    mutations = Mutations(lake.store, lake.clock)
    mutations.once("id", "Create d", DatabaseRecord, _create)
    with pytest.raises(InvalidArgument, match="'id' was already used for Create d"):
        mutations.once("id", "Create e", DatabaseRecord, _create)
    with pytest.raises(InvalidArgument, match="at most 200"):
        mutations.once("i" * 201, "Create d", DatabaseRecord, _create)
    assert _count(lake) == 1


def test_a_batch_makes_several_changes_at_one_time_each_once(lake: Lake) -> None:
    mutations = Mutations(lake.store, lake.clock)
    mutations.once("old", "Create d", DatabaseRecord, _create)
    lake.clock.advance(1_000)

    def body(mutation: Mutation) -> list[Outcome[DatabaseRecord]]:
        return [mutation.once(name, "Create d", DatabaseRecord, _create) for name in ("new", "old", "new")]

    outcomes = mutations.run(body)
    assert [outcome.repeated for outcome in outcomes] == [False, True, True]
    assert outcomes[0].answer == outcomes[2].answer
    assert _count(lake) == 2


def test_each_attempt_has_a_time_of_its_own(lake: Lake) -> None:
    times = []

    def body(mutation: Mutation) -> None:
        times.append(mutation.now_ms)
        lake.clock.advance(1_000)
        if len(times) == 1:
            raise Conflict("another one was first")

    began = lake.clock()
    Mutations(lake.store, lake.clock).run(body)
    assert times == [began, began + 1_000]
