"""A base as parts: the files of its version and of all versions before it, and the snapshot of any of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from lakemark_core.types import Schema
from lakemark_proto.store.v1.store_pb2 import BaseIndex, BasePart, PageReference
from lakemark_server.file_index.pages.contents import ADDED_VERSION, Integers, Mask, PageRef, StoredEntries, Summary
from lakemark_server.file_index.pages.numbers import decode_integers
from lakemark_server.file_index.pages.source import PageSource
from lakemark_server.file_index.pages.zone_table import ZoneTable
from lakemark_server.file_index.parts.part import Part

ALIVE: Final = np.iinfo(np.int64).max
"""The ``removed_version`` of a live entry."""


@dataclass(frozen=True, eq=False)
class StoredPart:
    """A part of a base, and the versions in which its entries are alive."""

    entries: StoredEntries
    known: BasePart

    def removed(self) -> Integers | None:
        """The version that removed each entry, or ALIVE; None if all are alive."""
        if not self.known.dead and not self.known.removed:
            return None
        stored = self.entries.removed_versions() if self.known.dead else None
        removed = np.full(self.entries.size, ALIVE, np.int64) if stored is None else stored.copy()
        count = self.known.removed
        if count:
            places = decode_integers(self.known.removed_places, count)
            removed[places] = decode_integers(self.known.removed_versions, count)
        return removed

    def at(self, version: int) -> Part | None:
        """The part with the entries that were alive in a version; None if there were none."""
        known = self.known
        if known.added_min > version or (known.dead and known.removed_max <= version):
            return None
        mask: Mask | None = None
        if known.added_max > version:
            mask = np.asarray(self.entries.column(ADDED_VERSION.name).to_numpy() <= version)
        if known.removed_min <= version:
            removed = self.removed()
            if removed is not None:
                alive = removed > version
                mask = alive if mask is None else mask & alive
        part = Part(self.entries)
        return part if mask is None else part.masked(mask)


class Base:
    """An index that was read. Its pages are read only when they are needed."""

    def __init__(
        self, base_id: int, index: BaseIndex, table_id: int, schemas: Callable[[int], Schema], source: PageSource
    ) -> None:
        self.base_id = base_id
        self.version = index.version
        self.branch_key = index.branch_key
        zones = {zone.schema_id: ZoneTable(zone.arrow, schemas(zone.schema_id)) for zone in index.zones}
        rows = dict.fromkeys(zones, 0)
        self.parts: list[StoredPart] = []
        for known in index.parts:
            row = rows[known.schema_id]
            rows[known.schema_id] += 1
            table = zones[known.schema_id]
            summary = Summary(
                frozenset(known.statistics_ids),
                (known.instant_min, known.instant_max),
                known.has_deltas,
                table,
                row,
            )
            pages = [_page(table_id, page) for page in known.pages]
            self.parts.append(StoredPart(StoredEntries(pages, table.schema, source, summary), known))
        self._zones = list(zones.values())
        self._pages = sum(len(known.pages) for known in index.parts)

    @cached_property
    def memory_bytes(self) -> int:
        """About what the index takes, without pages."""
        parts = sum(2_500 + part.known.ByteSize() for part in self.parts)
        return 1_000 + parts + 300 * self._pages + sum(zones.memory_bytes for zones in self._zones)

    def at(self, version: int) -> Iterator[Part]:
        """The parts of the base's own version, or of one before it."""
        for stored in self.parts:
            live = stored.at(version)
            if live is not None:
                yield live


def _page(table_id: int, page: PageReference) -> PageRef:
    return PageRef(table_id, page.owner, page.number, page.entries, page.added_version, page.block)
