"""Resolves a batch of finished transactions: checks each against those before it, and folds the admitted ones."""

from __future__ import annotations

from collections.abc import Sequence

from lakemark_core.errors import LakemarkError

from .api import Conflict
from .buffer import PendingTransaction
from .limits import too_old
from .overlay import Overlay
from .resolver import Resolution, Resolver
from .stamps import NO_STAMPS, stamp_of_batch


def resolve(
    resolver: Resolver, batch: Sequence[PendingTransaction], version: int
) -> tuple[Overlay, list[LakemarkError | None]]:
    """The folded writes of the admitted transactions, and for each transaction its error or None.

    ``version`` is the one at which the batch will be committed. The admitted writes are recorded in the resolver, which
    the caller seals or discards.
    """
    folded: Overlay | None = None
    errors: list[LakemarkError | None] = []
    for place, transaction in enumerate(batch):
        resolution = Resolution.ADMITTED
        if transaction.read_version is not None:
            resolution = resolver.check(transaction.read_version, transaction.read_keys, transaction.read_ranges)
        if resolution is Resolution.ADMITTED:
            writes = transaction.writes
            if transaction.stamps is not NO_STAMPS:
                transaction.stamps.write_to(writes, stamp_of_batch(version, place))
            resolver.record(writes.points, (*writes.cleared_ranges(), *transaction.write_conflicts))
            if folded is None:
                # The first overlay takes the writes of the others: most batches of large transactions have just one.
                folded = writes
            else:
                folded.merge(writes)
            errors.append(None)
        elif resolution is Resolution.CONFLICT:
            errors.append(Conflict("another transaction wrote what this one had read; nothing was applied"))
        else:
            errors.append(too_old())
    return folded or Overlay(), errors
