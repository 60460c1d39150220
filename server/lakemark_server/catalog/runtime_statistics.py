"""What Hive's optimizer has seen in queries that have run: payloads of its own, of which the latest are kept."""

from __future__ import annotations

import secrets
from typing import Final, NamedTuple

from lakemark_core.errors import LimitExceeded
from lakemark_server.kv import ReadTransaction, blob
from lakemark_server.store.keyspace import RUNTIME_PAYLOADS, RUNTIME_STATISTICS
from lakemark_server.store.mutations import Mutation, Mutations

KEPT_MAX: Final = 1_000
KEPT_S: Final = 3 * 86_400
"""As Hive (runtime.stats.max.age)."""
PAYLOAD_BYTES_MAX: Final = 500_000
ANSWER_BYTES_MAX: Final = 32 << 20


class RuntimeStatistic(NamedTuple):
    """``weight``: how much is in the payload, as its sender counts."""

    created_s: int
    weight: int
    payload: bytes


class RuntimeStatistics:
    """Thread-safe."""

    def __init__(self, mutations: Mutations) -> None:
        self._mutations = mutations
        self._store = mutations.store

    def add(self, weight: int, payload: bytes) -> None:
        """Keeps it for three days, or until there are ``KEPT_MAX`` later ones. Raises LimitExceeded."""
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise LimitExceeded(f"{len(payload):,} bytes of runtime statistics; at most {PAYLOAD_BYTES_MAX:,} are kept")
        number = secrets.randbits(48)

        def body(mutation: Mutation) -> None:
            tx, now_s = mutation.tx, mutation.now_ms // 1_000
            known = tx.get_range(*RUNTIME_STATISTICS.range(), snapshot=True)
            surplus = len(known) + 1 - KEPT_MAX
            for at, (key, _) in enumerate(known):
                created_s, other = RUNTIME_STATISTICS.unpack(key)
                if at >= surplus and int(created_s or 0) > now_s - KEPT_S:
                    break
                tx.clear(key)
                blob.clear(tx, RUNTIME_PAYLOADS.space(created_s, other))
            tx.set(RUNTIME_STATISTICS.key(now_s, number), weight.to_bytes(4, "big", signed=True))
            blob.put_new(tx, RUNTIME_PAYLOADS.space(now_s, number), payload)

        self._mutations.run(body)

    def latest(self, weight_max: int, created_s_max: int) -> list[RuntimeStatistic]:
        """The latest ones, which together weigh at most ``weight_max``, none later than ``created_s_max``.

        A limit that is negative does not count.
        """

        def body(tx: ReadTransaction) -> list[RuntimeStatistic]:
            begin, end = RUNTIME_STATISTICS.range()
            if created_s_max >= 0:
                end = RUNTIME_STATISTICS.key(created_s_max + 1)
            chosen: list[RuntimeStatistic] = []
            weight = size_bytes = 0
            for key, value in tx.get_range(begin, max(begin, end), reverse=True):
                created_s, number = RUNTIME_STATISTICS.unpack(key)
                own = int.from_bytes(value, "big", signed=True)
                weight += own
                if 0 <= weight_max < weight:
                    break
                payload = blob.get(tx, RUNTIME_PAYLOADS.space(created_s, number)) or b""
                size_bytes += len(payload)
                if size_bytes > ANSWER_BYTES_MAX:
                    break
                chosen.append(RuntimeStatistic(int(created_s or 0), own, payload))
            return chosen

        return self._store.read(body)
