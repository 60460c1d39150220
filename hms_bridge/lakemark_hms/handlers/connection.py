"""The methods that concern the connection and the process, not metadata: fb303's, and ``set_ugi``."""

from __future__ import annotations

import time
from typing import Final

from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.services import Services
from lakemark_hms.wire.dispatch import Call
from lakemark_server.admission.ranks import Rank
from lakemark_thrift.ttypes import ServiceStatus

_NAME: Final = "lakemark"
_VERSION: Final = "3.0"  # as Hive's metastore 2.3 to 4.x answers; clients compare it with nothing


class Connection(Subject, title="Connection and process"):
    """``aliveSince`` counts from the making of this object, in seconds."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._started = int(time.time())

    @method("set_ugi", Rank.VITAL)
    def set_ugi(self, call: Call) -> list[str]:
        """Notes who the client says it is. Answers with all its principals, the groups first, as Hive does.

        Who has logged in stays who they are.
        """
        args = call.args
        if not call.session.proven:
            call.session.user = args.user_name
            call.session.groups = args.group_names or []
        return [*(args.group_names or []), args.user_name or ""]

    @method("getName", Rank.VITAL)
    def name(self, _call: Call) -> str:
        return _NAME

    @method("getVersion", Rank.VITAL)
    def version(self, _call: Call) -> str:
        return _VERSION

    @method("getStatus", Rank.VITAL)
    def status(self, _call: Call) -> int:
        return ServiceStatus.ALIVE

    @method("aliveSince", Rank.WRITE)
    def alive_since(self, _call: Call) -> int:
        return self._started

    @method("getCounters", Rank.READ)
    @method("getOptions", Rank.READ)
    def no_entries(self, _call: Call) -> dict[str, object]:
        return {}

    @method("getCounter", Rank.READ)
    def no_count(self, _call: Call) -> int:
        return 0

    @method("getStatusDetails", Rank.READ)
    @method("getOption", Rank.READ)
    @method("getCpuProfile", Rank.READ)
    def no_text(self, _call: Call) -> str:
        return ""

    @method("setOption", Rank.WRITE)
    @method("reinitialize", Rank.WRITE)
    @method("shutdown", Rank.VITAL)
    def ignore(self, _call: Call) -> None:
        """Every client sends ``shutdown`` before it closes its connection. It does not stop the service."""
