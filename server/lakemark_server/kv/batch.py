"""A batch of finished transactions: each is checked against those before it, and the admitted ones are folded."""

from __future__ import annotations

from collections.abc import Sequence

from lakemark_core.errors import LakemarkError

from .api import Conflict
from .buffer import CommitRequest
from .limits import too_old
from .overlay import Overlay
from .resolver import Resolver, Verdict


def resolve(resolver: Resolver, batch: Sequence[CommitRequest]) -> tuple[Overlay, list[LakemarkError | None]]:
    """The folded writes of all that is admitted, and the errors of the others.

    The admitted are recorded in the resolver, which the caller seals or discards.
    """
    folded: Overlay | None = None
    errors: list[LakemarkError | None] = []
    for request in batch:
        verdict = Verdict.ADMITTED
        if request.read_version is not None:
            verdict = resolver.check(request.read_version, request.read_keys, request.read_ranges)
        if verdict is Verdict.ADMITTED:
            writes = request.writes
            resolver.record(writes.points, (*writes.cleared_ranges(), *request.write_conflicts))
            if folded is None:
                # The first one's own overlay serves for all: most batches of large transactions have no second one.
                folded = writes
            else:
                folded.merge(writes)
            errors.append(None)
        elif verdict is Verdict.CONFLICT:
            errors.append(Conflict("another transaction wrote what this one had read; nothing was applied"))
        else:
            errors.append(too_old())
    return folded or Overlay(), errors
