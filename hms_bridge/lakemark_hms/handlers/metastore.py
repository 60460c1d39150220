"""The metastore as a whole: its name, and what optimizers note in it."""

from __future__ import annotations

from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.services import Services
from lakemark_hms.wire.dispatch import Call
from lakemark_server.admission.ranks import Rank
from lakemark_server.catalog.runtime_statistics import RuntimeStatistics
from lakemark_server.store import identity
from lakemark_thrift.ttypes import RuntimeStat


class Metastore(Subject, title="The metastore itself"):
    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._statistics = RuntimeStatistics(services.catalog.mutations)

    @method("get_metastore_db_uuid", Rank.READ)
    def uuid(self, _call: Call) -> str:
        return identity.uuid_of(self._services.catalog.mutations)

    @method("add_runtime_stats", Rank.WRITE)
    def add_runtime_stats(self, call: Call) -> None:
        stat = call.args.stat
        self._statistics.add(stat.weight or 0, stat.payload or b"")

    @method("get_runtime_stats", Rank.READ)
    def runtime_stats(self, call: Call) -> list[RuntimeStat]:
        request = call.args.rqst
        return [
            RuntimeStat(createTime=one.created_s, weight=one.weight, payload=one.payload)
            for one in self._statistics.latest(_limit(request.maxWeight), _limit(request.maxCreateTime))
        ]


def _limit(number: int | None) -> int:
    return -1 if number is None else number
