"""What the lines of events say."""

from __future__ import annotations

from typing import Final

import pytest

from lakemark_proto.v1 import events_pb2 as pb
from lakemark_proto.v1.admin_pb2 import Quota
from lakemark_proto.v1.catalog_pb2 import Reference
from lakemark_proto.v1.timeline_pb2 import APPEND
from lakemark_web.event_texts import line_of

_NAMED = [pb.Constraint(type="NOT_NULL", name=f"n{at}", columns=["a"]) for at in range(7)]

TEXTS: Final = {
    "database_change": (pb.Event(database_change=pb.DatabaseChange()), ""),
    "table_change": (pb.Event(table_change=pb.TableChange(files_kept=True)), "its files are kept"),
    "partitions_change": (pb.Event(partitions_change=pb.PartitionsChange(count=2)), "2 partitions"),
    "function_change": (pb.Event(function_change=pb.FunctionChange(name_before="f")), "f"),
    "statistics_change": (pb.Event(statistics_change=pb.StatisticsChange()), "of all columns"),
    "constraints_change": (
        pb.Event(
            constraints_change=pb.ConstraintsChange(
                constraints=[
                    pb.Constraint(type="FOREIGN_KEY", name="f", columns=["a", "b"]),
                    pb.Constraint(type="CHECK", name="c"),
                ]
            )
        ),
        "foreign key f (a, b); check c",
    ),
    "commit": (
        pb.Event(commit=pb.CommitDetail(branch="main", version=3, operation=APPEND)),
        "version 3 on main: append",
    ),
    "rollback": (
        pb.Event(rollback=pb.RollbackDetail(branch="main", operation=APPEND, reason="silent")),
        "append on main: silent",
    ),
    "clean": (pb.Event(clean=pb.CleanDetail(deleted_files=1, deleted_bytes=1_000)), "1 file deleted (1 kB)"),
    "savepoint": (pb.Event(savepoint=pb.SavepointDetail(branch="main", version=3)), "of version 3 on main"),
    "reference": (pb.Event(reference=Reference(name="r", version=3)), "r at version 3"),
    "quota": (
        pb.Event(quota=pb.QuotaDetail(own=Quota(open_instants=5_000, tables=7))),
        "open instants 5,000, tables 7",
    ),
    "sink": (pb.Event(sink=pb.SinkDetail(name="s", receiver="webhook")), "s: webhook"),
    "optimization": (
        pb.Event(optimization=pb.OptimizationDetail(failures=2, last_error="full")),
        "the table after 2 failed runs: full",
    ),
    "note": (pb.Event(note=pb.ClientNote(what="INSERT")), "INSERT"),
}
"""An event for each kind of detail, with its text."""


@pytest.mark.parametrize("detail", [field.name for field in pb.Event.DESCRIPTOR.oneofs_by_name["detail"].fields])
def test_every_detail_has_a_text(detail: str) -> None:
    event, text = TEXTS[detail]
    assert event.WhichOneof("detail") == detail
    assert line_of(event).text == text


def test_a_line_names_some_of_many_constraints() -> None:
    event = pb.Event(constraints_change=pb.ConstraintsChange(constraints=_NAMED))
    assert line_of(event).text.endswith("; not null n4 (a); 2 more")
