"""What the pages say of the optimizer: real tables, a service that plans, a worker without Spark, asked over HTTP."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakemark import Client
from lakemark.client.optimization import OptimizationTask
from lakemark_core.errors import LakemarkError
from lakemark_optimizer.arrow import ArrowExecutor
from lakemark_optimizer.executor import Result
from lakemark_optimizer.worker import Worker
from lakemark_proto.store.v1.store_pb2 import LakeTableRecord
from lakemark_server.catalog.lake import LakeTable
from lakemark_web import optimizer_watch
from tests.integration.grpc_server import connected, running_service
from tests.integration.web.conftest import SETTINGS, Answer, Site
from tests.integration.web.test_pages import text_of

FRAGMENTS = "lakemark.optimize.minor.fragments"
ATTEMPTS = "lakemark.optimize.attempts-max"
TABLE = "/tables/hive/default/t"
PAGE = f"{TABLE}/optimizing"
ATTACK = "<script>alert(1)</script>"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "d": ["a", "a", "b"]})
WAIT_S = 30.0


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A page of a service that plans at once, and looks at all tables often."""
    monkeypatch.setattr(optimizer_watch, "AGAIN_S", 0.05)
    monkeypatch.setattr("lakemark_web.survey._WAIT_S", 0.05)
    with running_service(tmp_path, optimizer=True, optimizer_interval_s=0.05, **SETTINGS) as service:
        yield Site(service)


@pytest.fixture
def client(planned: Site) -> Iterator[Client]:
    with connected(planned.service) as opened:
        yield opened


class Gated:
    """The executor without Spark, once it is let through."""

    name = "arrow"

    def __init__(self, client: Client) -> None:
        self._executor = ArrowExecutor(client)
        self.gate = threading.Event()

    def run(self, task: OptimizationTask, cancelled: threading.Event) -> Result:
        assert self.gate.wait(WAIT_S)
        return self._executor.run(task, cancelled)

    def close(self) -> None:
        self.gate.set()
        self._executor.close()


class Failing:
    """An executor that never succeeds."""

    name = "arrow"

    def run(self, task: OptimizationTask, cancelled: threading.Event) -> Result:
        raise OSError(f"no space left on {ATTACK}")

    def close(self) -> None:
        pass


@contextmanager
def working(client: Client, executor: Any) -> Iterator[None]:
    worker = Worker(client, "default", {"arrow": executor}, 2, ask_s=0.02, heartbeat_s=0.2)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        if isinstance(executor, Gated):
            executor.gate.set()
        worker.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def shown_when(site: Site, path: str, holds: Callable[[str], object]) -> str:
    """What a reader sees on the page, once that is true of it."""
    ended, text = threading.Event(), ""
    timer = threading.Timer(WAIT_S, ended.set)
    timer.start()
    try:
        while not ended.wait(0.02):
            answer = site.get(path)
            assert answer.status == 200, answer.text
            assert "<script>alert" not in answer.text
            text = text_of(answer.text)
            if holds(text):
                return text
    finally:
        timer.cancel()
    raise AssertionError(text)


def fragmented(client: Client, commits: int = 4, **properties: str) -> None:
    """The table default.t: a fragment in each of two partitions with each commit."""
    client.tables.create(
        "default.t", "id bigint, d string", partitioned_by=["d"], properties={FRAGMENTS: "4", **properties}
    )
    for _ in range(commits):
        with client.begin("default.t") as writer:
            writer.write(ROWS)
            writer.commit()


def act(site: Site, table_page: str, query: str) -> Answer:
    """Asks for an action and confirms it, as a browser would."""
    page = site.get(f"{table_page}/action?{query}")
    if page.status != 200:
        return page
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text))
    cookie = page.headers["set-cookie"].partition(";")[0]
    return site.post(f"{table_page}/action", fields, origin=f"http://{site.host}", cookie=cookie)


def test_a_run_from_the_reason_why_not_to_what_it_saved(planned: Site, client: Client) -> None:
    fragmented(client, commits=3)
    idle = shown_when(planned, PAGE, lambda text: "Now idle" in text)
    assert "3 fragments of 4 needed" in idle
    assert f"or a smaller {FRAGMENTS}" in idle
    assert "d=a idle" in idle
    assert "d=b idle" in idle
    with client.begin("default.t") as writer:
        writer.write(ROWS)
        writer.commit()
    pending = shown_when(planned, PAGE, lambda text: "Now pending" in text and "No process plans" not in text)
    assert "4 fragments of 4 needed; group 'default' has no worker" in pending
    assert "What would change it lakemark optimizer run --group default" in pending
    executor = Gated(client)
    with working(client, executor):
        running = shown_when(planned, PAGE, lambda text: text.count("running") >= 2)
        assert "Tasks that wait or run" in running
        assert 'data-again="1"' in planned.get(PAGE).text
        groups = shown_when(planned, "/optimizer", lambda text: "No process plans" not in text)
        assert re.search(r"default fair .* no limit 1 2 2 0", groups)
        executor.gate.set()
        # What is open and what has ended are read one after the other: for a moment, a task may be in both lists.
        ended = "No run is planned or goes on."
        done = shown_when(planned, PAGE, lambda text: text.count("4 → 1") == 2 and ended in text)
    assert "done , version" in done
    assert "default.t d=" in shown_when(planned, "/optimizer", lambda text: text.count("4 → 1") == 2)


def test_what_was_stopped_and_who_waits_for_workers_need_a_person(planned: Site, client: Client) -> None:
    fragmented(client, **{ATTEMPTS: "1"})
    text = shown_when(planned, "/", lambda text: "has no worker" in text)
    assert "group default of the optimizer has no worker, and 1 table waits" in text
    with working(client, Failing()):
        text = shown_when(planned, "/", lambda text: "has stopped on 2 partitions of default.t" in text)
    assert f"no space left on {ATTACK}" in text
    assert "optimization stopped" in shown_when(
        planned, "/events?kind=stopped", lambda text: "after 1 failed run: " in text
    )
    stopped = shown_when(planned, PAGE, lambda text: "Now stopped" in text)
    assert f"1 failure in a row: OSError: no space left on {ATTACK}" in stopped
    assert act(planned, TABLE, "action=resume").status == 303
    shown_when(planned, "/", lambda text: "has stopped" not in text)


def test_actions_on_the_optimizer_are_confirmed_and_named(planned: Site, client: Client) -> None:
    fragmented(client, commits=2)
    asked = planned.get(f"{TABLE}/action?action=pause&why={ATTACK}")
    assert "Nothing more is planned until somebody resumes it." in text_of(asked.text)
    assert f"Reason: {ATTACK}" in text_of(asked.text)
    assert "<script>alert" not in asked.text
    assert client.optimizations.explain("default.t").state == "idle"
    answer = act(planned, TABLE, "action=pause&why=a+migration")
    assert (answer.status, answer.headers["location"]) == (303, f"{PAGE}?done=yes")
    paused = shown_when(planned, f"{PAGE}?done=yes", lambda text: "Now paused" in text)
    assert "paused by web page, 127.0.0.1" in paused
    assert "a migration" in paused
    assert "Done." in paused
    assert act(planned, TABLE, "action=resume").status == 303
    assert act(planned, TABLE, "action=hold&partition=d%3Da&minutes=90&why=audit").status == 303
    assert act(planned, TABLE, "action=optimize&kind=minor").status == 303
    held = shown_when(planned, PAGE, lambda text: "d=a held" in text)
    assert re.search(r"Held by users .* d=a [\d: -]+ web page, 127.0.0.1 audit Release", held)
    with working(client, ArrowExecutor(client)):
        shown_when(planned, PAGE, lambda text: text.count("2 → 1") == 1)
        assert act(planned, TABLE, "action=release&partition=d%3Da").status == 303
        assert act(planned, TABLE, "action=optimize&kind=minor&partition=d%3Da").status == 303
        text = shown_when(planned, PAGE, lambda text: text.count("2 → 1") == 2)
    assert "Held by users" not in text


def test_a_table_is_moved_to_a_group(planned: Site, client: Client) -> None:
    fragmented(client, commits=1)
    asked = planned.get(f"{TABLE}/action?action=move&group=etl")
    assert "Move default.t to group etl?" in text_of(asked.text)
    answer = act(planned, TABLE, "action=move&group=etl")
    assert (answer.status, answer.headers["location"]) == (303, f"{PAGE}?done=yes")
    assert client.optimizations.explain("default.t").group == "etl"
    assert "web page, 127.0.0.1" in shown_when(planned, "/events?only=default.t", lambda text: "table altered" in text)


def test_groups_are_paused_resumed_and_changed(planned: Site, client: Client) -> None:
    def group() -> Any:
        return {one.name: one for one in client.optimizations.groups()[0]}["etl"]

    answer = act(planned, "/optimizer", "action=pause&group=etl")
    assert (answer.status, answer.headers["location"]) == (303, "/optimizer?done=yes")
    assert group().paused
    text = text_of(planned.get("/optimizer?done=yes").text)
    assert "Done. The page shows what came of it." in text
    assert re.search(r"etl paused fair .* Resume group etl", text)
    assert act(planned, "/optimizer", "action=change&group=etl&order=fifo&minutes=240").status == 303
    changed = group()
    assert (changed.order, changed.quota_ms, changed.paused) == ("fifo", 14_400_000, True)
    assert act(planned, "/optimizer", "action=change&group=etl&minutes=0").status == 303
    assert act(planned, "/optimizer", "action=resume&group=etl").status == 303
    assert (group().order, group().paused) == ("fifo", False)
    assert "no limit" in text_of(planned.get("/optimizer").text)
    assert "Pause group etl" in text_of(planned.get("/optimizer").text)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("action=pause", "cannot name an optimizer group"),
        (f"action=pause&group={ATTACK}", "cannot name an optimizer group"),
        ("action=drop&group=etl", "there is no action 'drop' on a group"),
        ("action=change&group=etl", "say which order or which quota"),
        ("action=change&group=etl&order=random", "there is no order 'random'"),
        ("action=change&group=etl&minutes=-1", "no number"),
        ("action=change&group=etl&minutes=1000001", "at most 1,000,000 minutes"),
    ],
)
def test_actions_on_groups_that_make_no_sense_are_refused_in_words(site: Site, query: str, said: str) -> None:
    answer = act(site, "/optimizer", query)
    assert (answer.status, said in text_of(answer.text)) == (400, True), answer.text


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("action=move", 400, "cannot name an optimizer group"),
        ("action=move&group=a%20b", 400, "cannot name an optimizer group"),
        ("action=optimize&kind=best", 400, "there is no kind 'best' of runs"),
        ("action=optimize&partition=x%3D1", 400, "default.t"),
        ("action=release&partition=x%3D1", 400, "default.t"),
        ("action=hold&minutes=0", 400, "from 1 to 43,200 minutes"),
        ("action=hold&minutes=99999999", 400, "from 1 to 43,200 minutes"),
        ("action=hold&minutes=soon", 400, "no number"),
        (f"action=pause&why={'x' * 501}", 400, "at most 500 characters"),
    ],
)
def test_actions_that_make_no_sense_are_refused_in_words(
    site: Site, plain_table: None, query: str, status: int, said: str
) -> None:
    answer = act(site, TABLE, query)
    assert (answer.status, said in text_of(answer.text)) == (status, True), answer.text


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        (f"{PAGE}?partition=d%3Dmissing", 404, "has no files in a partition"),
        (f"{PAGE}?offset=x", 400, "no number"),
        (f"{PAGE}?before=1", 400, "no place among the runs"),
        (f"{PAGE}?before=1.2.3", 400, "no place among the runs"),
        ("/optimizer?before=a.b.c", 400, "no place among the runs"),
        (f"{PAGE}?offset=999999999", 200, "There are none."),
        (f"{PAGE}?before=9.9", 200, "There are none."),
        ("/optimizer?before=9.9.9", 200, "There are none."),
    ],
)
def test_places_that_make_no_sense_are_told_in_words(
    site: Site, plain_table: None, path: str, status: int, said: str
) -> None:
    answer = site.get(path)
    assert (answer.status, said in text_of(answer.text)) == (status, True), answer.text


@pytest.fixture
def plain_table(site: Site) -> None:
    """The table default.t of the service that all tests share."""
    catalog = site.service.catalog
    try:
        catalog.get_lake_table("hive", "default", "t")
    except LakemarkError:
        schema = catalog.get_lake_table("hive", "sales", "orders").schema
        table: LakeTable = catalog.create_lake_table(LakeTableRecord(database="default", name="t"), schema)
        assert table.name == "default.t"


def test_partitions_are_paged(planned: Site, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemark_web.pages.optimizer.PARTITIONS_SHOWN", 1)
    fragmented(client, commits=1)
    names = [re.findall(r'<th scope="row">(d=\w)</th>', planned.get(f"{PAGE}?{query}").text) for query in
             ("", "offset=1", "partition=d%3Db")]  # fmt: skip
    assert names == [["d=a"], ["d=b"], ["d=b"]]
    assert "offset=1" in planned.get(PAGE).text
    assert "offset=2" not in planned.get(f"{PAGE}?offset=1").text
