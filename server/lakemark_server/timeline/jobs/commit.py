"""Jobs that commit: with files that were read before, or with few files that are read together with their batch's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lakemark_server.file_index.pages.blocks import LIST_FILES_MAX
from lakemark_server.store.keyspace import ALIVE, INSTANTS
from lakemark_server.store.requests import check_request_id
from lakemark_server.timeline.jobs.job import JOB_BYTES, Batch, Job, PendingCommit, Retry
from lakemark_server.timeline.jobs.opening import OpenJob
from lakemark_server.timeline.publication.commits import Commit, CommitDraft

COMMIT_BYTES_MAX: Final = 8 << 10


@dataclass(frozen=True, slots=True)
class CommitJob(Job):
    """A commit whose files were read and checked. ``following`` opens the writer's next instant."""

    commit: Commit
    following: OpenJob | None = None

    @property
    def size_bytes(self) -> int:
        return JOB_BYTES + self.commit.size_bytes + _size_of(self.following)

    def reads(self, table_id: int) -> Sequence[bytes]:
        return INSTANTS.key(table_id, self.commit.instant), ALIVE.key(table_id, self.commit.instant)

    def run(self, batch: Batch) -> PendingCommit:
        return PendingCommit(self.commit, self.following)


@dataclass(slots=True)
class SmallCommitJob(Job):
    """A commit whose files are read together with those of its batch, and fit into its version's record.

    ``following`` opens the writer's next instant. Not frozen, because frozen objects take long to make and a busy table
    has tens of thousands of these a second; nobody changes it.
    """

    draft: CommitDraft
    following: OpenJob | None
    draft_bytes: int

    @classmethod
    def of(cls, draft: CommitDraft, following: OpenJob | None = None) -> SmallCommitJob | None:
        """None if the draft is not small.

        Files that came by column can only be counted when they are read: the answer may still be ``Retry.NOT_SMALL``.
        """
        if draft.removed or draft.file_schema:
            return None
        if draft.added is not None and len(draft.added.list.files) > LIST_FILES_MAX:
            return None
        draft_bytes = draft.size_bytes
        return cls(draft, following, draft_bytes) if draft_bytes <= COMMIT_BYTES_MAX else None

    @property
    def size_bytes(self) -> int:
        return JOB_BYTES + self.draft_bytes + _size_of(self.following)

    def check(self) -> None:
        """Raises InvalidArgument, LimitExceeded for what can be seen to be wrong without the store."""
        if self.following is not None:
            self.following.check()
        check_request_id(self.draft.request_id)  # the metadata of a small commit is within its limit

    def reads(self, table_id: int) -> Sequence[bytes]:
        return INSTANTS.key(table_id, self.draft.instant), ALIVE.key(table_id, self.draft.instant)

    def prepare(self, batch: Batch) -> None:
        batch.commits.add(self.draft)

    def run(self, batch: Batch) -> PendingCommit | Retry:
        commit = batch.commits.commit(self.draft)
        return Retry.NOT_SMALL if commit is None else PendingCommit(commit, self.following)


def _size_of(following: OpenJob | None) -> int:
    return 0 if following is None else following.size_bytes
