"""What clients report of their own work: files that they wrote into warehouse tables, partitions to read anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lakemark_core.errors import LimitExceeded
from lakemark_proto.v1.events_pb2 import ClientNote
from lakemark_server.catalog import events, warehouse_records
from lakemark_server.catalog.warehouse_records import HiveTable
from lakemark_server.store.mutations import Mutation, Mutations

INSERTED: Final = "INSERT"
WRITTEN: Final = "WRITE"
REFRESHED: Final = "REFRESH"

NOTE_BYTES_MAX: Final = 1_000_000
"""Of the notes that are told together, mostly names of files."""


class ClientNotes:
    """Thread-safe. A note changes nothing but the log of events."""

    def __init__(self, mutations: Mutations) -> None:
        self._mutations = mutations

    def tell(self, notes: Sequence[tuple[HiveTable, ClientNote]], request_id: str) -> None:
        """Tells an event for each note, all together. Their events carry ``request_id``.

        Raises TableNotFound, LimitExceeded.
        """
        size_bytes = sum(note.ByteSize() for _, note in notes)
        if size_bytes > NOTE_BYTES_MAX:
            raise LimitExceeded(
                f"the notes take {size_bytes} bytes; at most {NOTE_BYTES_MAX} can be told together: tell fewer files "
                "at a time"
            )

        def body(mutation: Mutation) -> None:
            for table, note in notes:
                warehouse_records.require_table(mutation.tx, table)
                mutation.tell(events.of_note(table, note, request_id))

        self._mutations.run(body)
