"""Tasks by spark-submit, with a program that stands for it: what it is called with, how it ends, how it is ended."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pytest

from lakemark import Client
from lakemark.client.optimization import OptimizationTask
from lakemark.errors import FailedPrecondition, Unavailable
from lakemark_optimizer.submission import Submission, SubmitExecutor
from tests.integration.grpc_server import connected, running_service

# It does with pyarrow what the real program does with Spark.
STAND_IN = """
    import json, sys, threading, time
    from pathlib import Path
    from lakemark import connect
    from lakemark.client.optimization import OptimizationTask
    from lakemark_core.errors import CommitConflict
    from lakemark_optimizer.arrow import ArrowExecutor

    Path({record!r}).write_text(json.dumps(sys.argv))
    how = sys.argv[1]
    if how == "hang":
        time.sleep(600)
    if how == "fail":
        print("Exception in thread main: no such queue")
        sys.exit(1)
    server, task = sys.argv[-2:]
    with connect(server) as client:
        try:
            ArrowExecutor(client).run(OptimizationTask(**json.loads(task)), threading.Event())
        except CommitConflict:
            pass  # as the real program does
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with running_service(tmp_path) as service, connected(service) as opened:
        opened.tables.create("default.t", "id bigint")
        for _ in range(3):
            with opened.begin("default.t") as writer:
                writer.write(pa.table({"id": [1, 2]}))
                writer.commit()
        yield opened


@pytest.fixture
def submission(client: Client, tmp_path: Path) -> Submission:
    program = tmp_path / "stand_in.py"
    program.write_text(dedent(STAND_IN.format(record=str(tmp_path / "argv"))))
    return Submission(
        client.address,
        (sys.executable, str(program), "go"),
        "k8s://https://k",
        "cluster",
        {"b": "2", "a": "1"},
        ("x.zip",),
    )


def task_of(client: Client) -> OptimizationTask:
    writer = client.begin("default.t", "cluster", start=False, request_id="plan")
    names = dict.fromkeys(OptimizationTask.__dataclass_fields__, 0)
    texts = ("group", "reason", "worker", "executor", "message", "state", "partition")
    return OptimizationTask(
        **{
            **names,
            **dict.fromkeys(texts, ""),
            "table": "default.t",
            "instant": writer.instant,
            "request_id": "plan",
            "kind": "minor",
            "read_version": writer.read_version,
            "buckets": False,
            "needs_spark": False,
            "small_bytes": 1 << 20,
            "bytes_max": 1 << 30,
        }  # type: ignore[arg-type]
    )


def with_word(submission: Submission, word: str) -> Submission:
    return replace(submission, command=(*submission.command[:2], word))


def test_the_program_is_submitted_and_its_instant_says_how_it_ended(
    client: Client, submission: Submission, tmp_path: Path
) -> None:
    task = task_of(client)
    result = SubmitExecutor(client, submission, 0.05).run(task, threading.Event())
    assert (result.outcome, result.version) == ("done", 4)
    assert client.plan("default.t").summary.files_planned == 1
    words = json.loads((tmp_path / "argv").read_text())
    assert words[1:6] == ["go", "--master", "k8s://https://k", "--deploy-mode", "cluster"]
    assert words[8:14] == ["--conf", "a=1", "--conf", "b=2", "--py-files", "x.zip"]
    assert words[14].endswith("program.py")
    assert words[15] == client.address
    assert json.loads(words[16])["instant"] == task.instant


def test_a_program_that_fails_is_told_with_its_last_words(client: Client, submission: Submission) -> None:
    with pytest.raises(Unavailable, match=r"ended with 1, and the instant is requested; .* no such queue"):
        SubmitExecutor(client, with_word(submission, "fail"), 0.05).run(task_of(client), threading.Event())


def test_a_program_whose_task_was_taken_away_is_ended(client: Client, submission: Submission) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(FailedPrecondition, match="its program was ended"):
        SubmitExecutor(client, with_word(submission, "hang"), 0.05).run(task_of(client), cancelled)


def test_a_program_that_is_not_there_is_named(client: Client, submission: Submission) -> None:
    missing = replace(submission, command=("/nowhere/spark-submit",))
    with pytest.raises(FailedPrecondition, match="'/nowhere/spark-submit' cannot be started"):
        SubmitExecutor(client, missing).run(task_of(client), threading.Event())


@pytest.mark.parametrize("committed", [True, False])
def test_a_program_that_a_writer_was_faster_than_has_lost_and_not_failed(
    client: Client, submission: Submission, committed: bool
) -> None:
    """Nothing was done in both cases. What lost is tried again, and what had nothing to do is not."""
    task = task_of(client)
    with client.begin("default.t", "overwrite_table") as writer:
        writer.write(pa.table({"id": [3]}))
        if committed:
            writer.commit()
        result = SubmitExecutor(client, submission, 0.05).run(task, threading.Event())
        assert (result.outcome, result.version) == ("conflicted", 0), result.message
        if not committed:
            writer.commit()
    assert client.read("default.t").num_rows == 1


def test_a_program_that_finds_nothing_to_do_says_so(client: Client, submission: Submission) -> None:
    task = task_of(client)
    result = SubmitExecutor(client, submission, 0.05).run(replace(task, small_bytes=1), threading.Event())
    assert (result.outcome, result.message) == ("nothing", "there is nothing to merge any more")
