"""A commit on its way: as its writer hands it in, ready to be published, and published.

These are named tuples because a busy table makes tens of thousands of them a second: a frozen dataclass takes four
times as long to make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from lakemark_core.errors import LimitExceeded
from lakemark_proto.store.v1.store_pb2 import CommittedRecord, InstantRecord
from lakemark_proto.v1.types_pb2 import DataFiles
from lakemark_server.context import caller
from lakemark_server.store.requests import check_request_id
from lakemark_server.timeline.instants.staging import NO_ENTRIES, Entries

NO_METADATA: Final[Mapping[str, str]] = MappingProxyType({})
METADATA_BYTES_MAX: Final = 20_000
_MAP_ENTRY_BYTES: Final = 8  # what protobuf adds to a key and its value


class CommitDraft(NamedTuple):
    """A commit as its writer hands it in; its files were not looked at yet.

    ``added`` is the data message that the writer sent, because the files of a whole batch are decoded together
    (``jobs.reading``); None: no files. ``removed`` are paths relative to the table's location. ``file_schema`` is the
    Arrow schema (IPC) of the files; empty: not told. ``schema_id`` 0: the schema that the instant was opened with.
    ``request_id`` is not recorded, since the instant itself tells whether it was committed.
    ``by``: who asks for it; the commits of a batch are those of several.
    """

    instant: int
    added: DataFiles | None = None
    removed: Sequence[str] = ()
    file_schema: bytes = b""
    schema_id: int = 0
    metadata: Mapping[str, str] = NO_METADATA
    request_id: str = ""
    by: caller.Name = caller.nobody

    @property
    def size_bytes(self) -> int:
        """Of the files that it adds and of its metadata."""
        return (0 if self.added is None else self.added.ByteSize()) + metadata_bytes(self.metadata)

    def check(self) -> None:
        """Raises InvalidArgument, LimitExceeded for what can be seen to be wrong without the store."""
        check_request_id(self.request_id)
        check_metadata(self.metadata)


class Commit(NamedTuple):
    """A commit that is ready to be published. ``entries`` were not staged before, and are inline."""

    instant: int
    schema_id: int = 0
    metadata: Mapping[str, str] = NO_METADATA
    entries: Entries = NO_ENTRIES
    by: caller.Name = caller.nobody

    @property
    def size_bytes(self) -> int:
        """Of its files and metadata, which are all of a version that can be large."""
        return len(self.entries.block) + len(self.entries.removed_block) + metadata_bytes(self.metadata)


class Committed(NamedTuple):
    """The version that an instant became; the same however often it is asked for.

    ``rebased_over``: how many versions of others lie between the version that the writer had read and this one.
    """

    version: int
    instant: int
    committed_ms: int
    rebased_over: int = 0

    @classmethod
    def of_instant(cls, record: InstantRecord) -> Committed:
        """Of a completed instant."""
        return cls(record.version, record.instant, record.completed_ms, record.version - 1 - record.read_version)

    @classmethod
    def of_record(cls, record: CommittedRecord) -> Committed:
        """As it was recorded under a request id."""
        return cls(record.version, record.instant, record.committed_ms, record.rebased_over)

    def to_record(self) -> CommittedRecord:
        return CommittedRecord(
            version=self.version,
            instant=self.instant,
            committed_ms=self.committed_ms,
            rebased_over=self.rebased_over,
        )


def metadata_bytes(metadata: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) + _MAP_ENTRY_BYTES for key, value in metadata.items())


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raises LimitExceeded if it takes more room than a version's record has for it."""
    size = metadata_bytes(metadata)
    if size > METADATA_BYTES_MAX:
        raise LimitExceeded(
            f"the metadata of an instant takes {size} bytes; at most {METADATA_BYTES_MAX} are kept, counting what was "
            "given when it was opened and with its commit"
        )
