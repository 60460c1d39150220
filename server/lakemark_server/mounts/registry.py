"""Mounts as they are stored."""

from __future__ import annotations

from typing import Final

from lakemark_core.errors import AlreadyExists, InvalidArgument, LimitExceeded, NotFound
from lakemark_proto.v1 import mounts_pb2 as pb
from lakemark_server.catalog import catalogs, databases
from lakemark_server.catalog.names import catalog_name, legal_name
from lakemark_server.context import caller
from lakemark_server.context.clock import ClockMs, now_ms
from lakemark_server.kv import ReadTransaction, Store, keys_below
from lakemark_server.listeners.addresses import parse_addresses
from lakemark_server.store.keyspace import MOUNTS
from lakemark_server.store.mutations import Mutation, Mutations

CACHE_MS: Final = 10_000
CACHE_MS_MAX: Final = 86_400_000
MOUNTS_MAX: Final = 1_000
"""In a catalog."""


class MountNotFound(NotFound):
    """There is no mount of that name."""

    code = "mount_not_found"


class Mounts:
    """Thread-safe."""

    def __init__(self, store: Store, clock: ClockMs = now_ms) -> None:
        self._store = store
        self._mutations = Mutations(store, clock)

    def create(self, wanted: pb.Mount, request_id: str = "") -> pb.Mount:
        """The outside Metastore need not answer yet.

        Raises AlreadyExists (also for a database of the name), NotFound for the catalog, InvalidName, InvalidArgument,
        LimitExceeded.
        """
        draft = pb.Mount()
        draft.CopyFrom(wanted)
        draft.catalog = catalog_name(wanted.catalog)
        draft.name = legal_name("database", wanted.name)
        draft.database = legal_name("database", wanted.database or wanted.name)
        draft.owner = wanted.owner or caller.current()
        parse_addresses(draft.uri)
        if not 0 <= draft.cache_ms <= CACHE_MS_MAX:
            raise InvalidArgument(f"answers are kept for 0 to {CACHE_MS_MAX} ms, not {draft.cache_ms}")

        def create(mutation: Mutation) -> pb.Mount:
            tx, key = mutation.tx, MOUNTS.key(draft.catalog, draft.name)
            if tx.get(key) is not None:
                raise AlreadyExists(f"a database is mounted under the name {draft.name!r} already", name=draft.name)
            if databases.find(tx, draft.catalog, draft.name) is not None:
                raise AlreadyExists(f"there is a database {draft.name!r} here; mount under another name")
            catalogs.require(tx, draft.catalog, or_may_be_made=False)
            if len(tx.get_range(*MOUNTS.range(draft.catalog), limit=MOUNTS_MAX, snapshot=True)) == MOUNTS_MAX:
                raise LimitExceeded(f"catalog {draft.catalog!r} has {MOUNTS_MAX} mounts, and may not have more")
            draft.created_ms = mutation.now_ms
            tx.set(key, draft.SerializeToString())
            return draft

        kind = f"CreateMount {draft.catalog}.{draft.name}"
        return self._mutations.once(request_id, kind, pb.Mount, create).answer

    def get(self, catalog: str, name: str) -> pb.Mount:
        """Raises MountNotFound."""
        return self._store.read(lambda tx: _get(tx, catalog_name(catalog), name.lower()))

    def list(self, catalog: str) -> list[pb.Mount]:
        """The mounts of a catalog, in order of name."""
        return [pb.Mount.FromString(value) for _, value in keys_below(self._store, MOUNTS, catalog_name(catalog))]

    def drop(self, catalog: str, name: str, *, if_exists: bool = False, request_id: str = "") -> bool:
        """Whether there was one. Nothing happens outside. Raises MountNotFound."""
        place = catalog_name(catalog), name.lower()

        def body(mutation: Mutation) -> pb.DropMountResponse:
            if mutation.tx.get(MOUNTS.key(*place)) is None and if_exists:
                return pb.DropMountResponse()
            _get(mutation.tx, *place)
            mutation.tx.clear(MOUNTS.key(*place))
            return pb.DropMountResponse(dropped=True)

        kind = f"DropMount {'.'.join(place)}"
        return self._mutations.once(request_id, kind, pb.DropMountResponse, body).answer.dropped


def _get(tx: ReadTransaction, catalog: str, name: str) -> pb.Mount:
    stored = tx.get(MOUNTS.key(catalog, name)) if 0 < len(name) < 200 else None
    if stored is None:
        raise MountNotFound(f"no database is mounted under the name {name[:200]!r}", name=name)
    return pb.Mount.FromString(stored)
