"""The methods that concern the connection and the process, not metadata: fb303's, and ``set_ugi``."""

from __future__ import annotations

import time

from lakemark_hms.wire.dispatch import Call, Handler
from lakemark_thrift.services import set_ugi_args
from lakemark_thrift.ttypes import ServiceStatus

# What Hive's own metastore says of 2.3 to 4.x; clients compare it with nothing.
_VERSION = "3.0"


def base_handlers(name: str = "lakemark") -> dict[str, Handler]:
    """Handlers by method name; ``aliveSince`` counts from now, in seconds."""
    started = int(time.time())
    return {
        "getName": lambda _call: name,
        "getVersion": lambda _call: _VERSION,
        "getStatus": lambda _call: ServiceStatus.ALIVE,
        "getStatusDetails": lambda _call: "",
        "aliveSince": lambda _call: started,
        "getCounters": lambda _call: {},
        "getCounter": lambda _call: 0,
        "getOptions": lambda _call: {},
        "getOption": lambda _call: "",
        "setOption": lambda _call: None,
        "getCpuProfile": lambda _call: "",
        "reinitialize": lambda _call: None,
        # Every client sends it before it closes its connection.
        "shutdown": lambda _call: None,
        "set_ugi": _set_ugi,
    }


def _set_ugi(call: Call) -> list[str]:
    """Notes who the client says it is; answers with all its principals, the groups first, as Hive does."""
    args = call.read(set_ugi_args)
    call.session.user = args.user_name
    call.session.groups = args.group_names or []
    return [*call.session.groups, args.user_name or ""]
