"""Configuration of the session, and questions about the service itself."""

from __future__ import annotations

from typing import Final

from lakemark_hms.services import Services
from lakemark_hms.wire.dispatch import Call, Handler
from lakemark_thrift.ttypes import FireEventResponse

_SESSION_CONFIG: Final = "config"


class _Misc:
    def __init__(self, services: Services) -> None:
        self._services = services

    def config_value(self, call: Call) -> str:
        """What the service is configured with, else what the client proposes."""
        return self._services.config.get(call.args.name or "", call.args.defaultValue or "")

    def get_meta_conf(self, call: Call) -> str:
        return str(call.session.data.get(_SESSION_CONFIG, {}).get(call.args.key, ""))

    def set_meta_conf(self, call: Call) -> None:
        """Kept for the connection and given back; nothing in this service depends on it."""
        call.session.data.setdefault(_SESSION_CONFIG, {})[call.args.key] = call.args.value

    @staticmethod
    def fire_event(_call: Call) -> FireEventResponse:
        """Engines tell of the files that they wrote; who listens reads the events of commits instead."""
        return FireEventResponse(eventIds=[])


def handlers(services: Services) -> dict[str, Handler]:
    subject = _Misc(services)
    return {
        "get_config_value": subject.config_value,
        "getMetaConf": subject.get_meta_conf,
        "setMetaConf": subject.set_meta_conf,
        "flushCache": lambda _call: None,
        "fire_listener_event": subject.fire_event,
    }
