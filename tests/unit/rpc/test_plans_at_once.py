"""Plans that are made on the event loop: the same responses as from a thread, and only if nothing has to wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark_core.errors import InvalidPredicate
from lakemark_proto.v1 import catalog_pb2 as c
from lakemark_proto.v1 import snapshot_pb2 as s
from lakemark_proto.v1 import timeline_pb2 as t
from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.file_index.planning.planner import Planner
from lakemark_server.rpc import snapshot as rpc
from lakemark_server.rpc.plans import PlanResponses
from lakemark_server.rpc.snapshot import SnapshotServicer
from lakemark_server.snapshots.service import SnapshotReference, Snapshots
from lakemark_server.timeline.lineage import Lineage
from lakemark_server.timeline.references import ReferenceDraft
from tests.lakes import Lake, file, open_lake, stat

FILES = 40


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with open_lake(tmp_path) as opened:
        if opened.store.writes_begun() is None:
            pytest.skip("this store cannot be asked without waiting")
        yield opened


def append(lake: Lake, name: str = "t", operation: t.Operation.ValueType = t.APPEND, first: int = 0) -> None:
    table = lake.catalog.get_lake_table("", "default", name)
    instant = lake.open(table, operation)
    given = [
        file(instant, f"f{first + n}", 1 + n % 2, stats=[stat(1, 10 * (first + n), 10 * (first + n) + 9, 0)])
        for n in range(FILES)
    ]
    lake.commit(table, instant, given)


def request(sql: str = "id >= 100 AND id < 150", **more: object) -> s.PlanFilesRequest:
    at = s.SnapshotReference(**more.pop("at", {}))  # type: ignore[arg-type]
    table = p.TableName(database="default", table=str(more.pop("table", "t")))
    return s.PlanFilesRequest(table=table, predicate=p.Predicate(sql=sql), at=at, **more)  # type: ignore[arg-type]


def at_once(servicer: SnapshotServicer, asked: s.PlanFilesRequest) -> bytes | None:
    """The response of the event loop, which never waits."""
    quick = servicer.quick["PlanFiles"]
    if not quick.takes(asked):
        return None
    answer = quick.answer(asked)
    try:
        answer.send(None)  # type: ignore[attr-defined]
    except StopIteration as stop:
        return None if stop.value is None else stop.value.SerializeToString()
    raise AssertionError("it waited")


def by_thread(lake: Lake, asked: s.PlanFilesRequest) -> bytes:
    """The response of a service with empty caches."""
    return new(lake).PlanFiles(asked, None).SerializeToString()  # type: ignore[arg-type]


def new(lake: Lake) -> SnapshotServicer:
    snapshots = Snapshots(lake.store)
    return SnapshotServicer(snapshots, Planner(snapshots.cache))


def warm(lake: Lake, *asked: s.PlanFilesRequest) -> SnapshotServicer:
    servicer = new(lake)
    for one in asked:
        servicer.PlanFiles(one, None)  # type: ignore[arg-type]
    return servicer


REQUESTS = [
    request(),
    request("m = 1"),
    request("m = 2 AND id > 390", statistics_columns=["id"]),
    request("id IS NULL OR x > 3", encoding=s.ARROW_COMPACT),
    request("FALSE"),
    request(limit=2),
    request("m = 1", encoding=s.PROTOBUF),
    request(page_size=3),
    request(at={"version": 1}),
    request(at={"tag": "kept"}),
    request(at={"branch": "dev"}),
    request("name LIKE '%x%'"),
]


def shown(answer: bytes) -> tuple[object, ...]:
    """Everything that a client sees of a response, in whatever encoding."""
    message = s.PlanFilesResponse.FromString(answer)
    rows = [] if not message.files.arrow else pa.ipc.open_stream(message.files.arrow).read_all().to_pylist()
    message.files.arrow = b""
    return rows, message.SerializeToString(deterministic=True)


def test_whatever_happens_to_the_table_answers_are_those_of_now(lake: Lake) -> None:
    table = lake.table()
    append(lake)
    for name, kind in (("dev", c.BRANCH), ("kept", c.TAG)):
        lake.timeline.references.create(table, ReferenceDraft(name=name, kind=kind))
    servicer = new(lake)
    again = ReferenceDraft(name="kept", kind=c.TAG)
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: append(lake, first=30),
        lambda: append(lake, operation=t.OVERWRITE_TABLE, first=5),
        lambda: lake.timeline.restore(table, 1),
        lambda: (lake.timeline.references.drop(table, "kept"), lake.timeline.references.create(table, again)),
        lambda: (
            lake.catalog.dropped.drop("", "default", "t"),
            lake.table("t"),
            append(lake, "t", first=60),
            *(lake.timeline.references.create(lake.catalog.get_lake_table("", "default", "t"), one) for one in made),
        ),
    ]
    made = [ReferenceDraft(name="dev", kind=c.BRANCH), again]
    answered = 0
    for change in changes:
        change()
        for _ in range(2):
            for asked in REQUESTS:
                found = at_once(servicer, asked)
                answered += found is not None
                if found is None:
                    found = servicer.PlanFiles(asked, None).SerializeToString()  # type: ignore[arg-type]
                assert shown(found) == shown(by_thread(lake, asked)), asked
    assert answered > len(changes) * len(REQUESTS) / 2


def test_what_was_answered_before_is_answered_at_once_in_the_same_bytes(lake: Lake) -> None:
    lake.table()
    append(lake)
    for asked in REQUESTS:
        if asked.at.tag or asked.at.branch or asked.page_size:
            continue
        servicer = new(lake)
        assert at_once(servicer, asked) is None, "nothing is in memory yet"
        answer = servicer.PlanFiles(asked, None)  # type: ignore[arg-type]
        assert at_once(servicer, asked) == answer.SerializeToString()


def test_other_plans_are_answered_at_once_if_all_they_need_is_in_memory(lake: Lake) -> None:
    lake.table()
    append(lake)
    servicer = warm(lake, request(), request("m = 1"))
    for sql in ("id >= 120 AND id < 199", "id = 333", "m = 2", "m = 1 AND id IN (5, 6)"):
        found = at_once(servicer, request(sql))
        assert found is not None, sql
        assert shown(found) == shown(by_thread(lake, request(sql)))
    paged = at_once(servicer, request("id < 250", page_size=3))
    assert paged is not None
    first = s.PlanFilesResponse.FromString(paged)
    following = request("id < 250", page_size=3)
    following.page_token = first.next_page_token
    assert at_once(servicer, following) is None
    assert servicer.PlanFiles(following, None).page_files == 3  # type: ignore[arg-type]


def test_what_may_take_long_is_left_to_a_thread(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.table()
    append(lake)
    servicer = warm(lake, request(), request("m = 1"))
    longer = "id = 1 OR " * 20 + "id = 2"
    for asked in (
        request("name LIKE '1%2'"),
        request(longer),
        request(f"id IN ({', '.join(map(str, range(20)))})"),
        request("x > 1"),  # no bounds of x were looked at
        request("id = 3", encoding=s.PROTOBUF),
        request("id = 3", statistics_columns=["id"] * 9),
        s.PlanFilesRequest(table=request().table),
    ):
        assert at_once(servicer, asked) is None, asked
    assert at_once(servicer, request("id = 4")) is not None
    another = SnapshotServicer(servicer._snapshots, servicer._planner)
    assert at_once(another, request("id = 9")) is None, "the parser may have to be loaded"
    another.PlanFiles(request("id = 9"), None)  # type: ignore[arg-type]
    assert at_once(another, request("id = 8")) is not None
    monkeypatch.setattr(rpc, "QUICK_FILES_MAX", 3)
    assert at_once(servicer, request("id < 50")) is None
    monkeypatch.setattr(rpc, "QUICK_SNAPSHOT_PARTS_MAX", 0)
    assert at_once(servicer, request("id = 5")) is None
    monkeypatch.undo()
    monkeypatch.setattr(rpc, "QUICK_PARTS_MAX", 0)
    assert at_once(servicer, request("id = 6")) is None


def test_pages_that_left_the_memory_are_not_read_on_the_loop(lake: Lake) -> None:
    lake.table()
    append(lake)
    servicer = warm(lake, request())
    servicer._snapshots.forget()
    assert at_once(servicer, request("id = 7")) is None
    servicer = warm(lake, request())
    servicer._snapshots.cache.clear()
    assert at_once(servicer, request("id = 7")) is None


def test_mistakes_are_told_as_by_a_thread(lake: Lake) -> None:
    lake.table()
    append(lake)
    servicer = warm(lake, request())
    with pytest.raises(InvalidPredicate, match="no column"):
        at_once(servicer, request("nothing = 1"))
    with pytest.raises(InvalidPredicate, match="cannot be read"):
        at_once(servicer, request("id = = 1"))


def test_kept_answers_are_bounded_and_told_apart_by_what_never_changes(lake: Lake) -> None:
    table = lake.table()
    append(lake)
    found = lake.snapshots.resolve("", "default", "t", SnapshotReference())
    answers = PlanResponses(bytes_max=10_000)
    response = s.PlanFilesResponse(version=1, files=p.DataFiles(arrow=b"x" * 1_000))
    for number in range(20):
        answers.keep(found, request(f"id = {number}"), response)
    kept = [number for number in range(20) if answers.find(found, request(f"id = {number}"))]
    assert kept == [18, 19]
    moved = lake.catalog.get_lake_table("", "default", "t")
    moved.record.location += "/elsewhere"
    others = (
        replace(found, version=0),
        replace(found, table=replace(table, record=moved.record)),
        replace(found, lineage=Lineage((("dev#7", 0), *found.lineage.forks))),
    )
    assert [answers.find(one, request("id = 19")) for one in others] == [None] * 3
    page = s.PlanFilesResponse(version=1, next_page_token="more")  # noqa: S106 - not a secret
    large = s.PlanFilesResponse(version=1, files=p.DataFiles(arrow=b"x" * 70_000))
    for one in (page, large):
        answers.keep(found, request("id = 20"), one)
        assert answers.find(found, request("id = 20")) is None
