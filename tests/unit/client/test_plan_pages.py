"""Pages of a plan: prefetched, fetched once each, and fetched again after an error."""

from __future__ import annotations

import threading
from typing import Any

import grpc
import pytest

from lakemark.errors import Unavailable
from lakemark.reading.plan import Plan
from lakemark.types import INT, Field, Schema
from lakemark_core.messages.types import schema_to_proto
from lakemark_proto.v1 import snapshot_pb2 as pb
from lakemark_proto.v1 import types_pb2

SCHEMA = Schema.build([Field(1, "id", INT)], (), 1)
LAST = 3


class Answers:
    """Stands in for ``Calls``: page n has one file f<n>; requests for pages in ``failing`` fail once."""

    def __init__(self, failing: set[str]) -> None:
        self.channel = grpc.insecure_channel("localhost:0")
        self.asked: list[str] = []
        self.failing = failing
        self.second = threading.Event()

    def __call__(self, method: Any, request: pb.PlanFilesRequest) -> pb.PlanFilesResponse:
        page = request.page_token or "1"
        self.asked.append(page)
        if page == "2":
            self.second.set()
        if page in self.failing:
            self.failing.remove(page)
            raise Unavailable("gone for a moment")
        number = int(page)
        file = types_pb2.DataFile(path=f"f{number}", kind=types_pb2.BASE)
        return pb.PlanFilesResponse(
            files=types_pb2.DataFiles(list=types_pb2.DataFileList(files=[file])),
            schema=schema_to_proto(SCHEMA),
            next_page_token=str(number + 1) if number < LAST else "",
        )


def plan_of(*failing: str) -> tuple[Plan, Answers]:
    answers = Answers(set(failing))
    return Plan(answers, pb.PlanFilesRequest(), None), answers  # type: ignore[arg-type]


def test_the_next_page_is_on_its_way_while_one_is_read() -> None:
    plan, answers = plan_of()
    assert answers.asked == ["1"], "nobody has asked for files yet"
    files = iter(plan)
    assert next(files).path == "f1"
    assert answers.second.wait(10)
    assert [file.path for file in files] == ["f2", "f3"]
    assert [file.path for file in plan] == ["f1", "f2", "f3"]
    assert answers.asked == ["1", "2", "3"]


def test_a_page_that_could_not_be_fetched_is_asked_for_again() -> None:
    plan, answers = plan_of("2")
    with pytest.raises(Unavailable):
        plan.files()
    assert [file.path for file in plan] == ["f1", "f2", "f3"]
    assert answers.asked == ["1", "2", "2", "3"]
