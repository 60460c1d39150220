"""Compact columns, as a service sends them and a client reads them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakemark.files.pages import table_of_page
from lakemark_proto.v1 import types_pb2
from lakemark_server.file_index.pages.blocks import to_plain_ipc
from lakemark_server.file_index.planning.planner import Plan, Planner


def check_compact(planner: Planner, plan: Plan, offset: int, limit: int, statistics: Sequence[int] = ()) -> None:
    """A client decodes compact columns to the page that they stand for."""
    page = plan.page(offset, limit, statistics)
    if page.num_rows:
        sent = types_pb2.DataFiles(arrow=to_plain_ipc(planner.compact_page(plan, offset, limit, statistics)))
        arrived = table_of_page(sent, plan.snapshot.schema)
        arrived.validate(full=True)
        assert arrived.equals(pa.Table.from_batches([page]))
