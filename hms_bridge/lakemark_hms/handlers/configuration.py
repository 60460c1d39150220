"""Configuration of the session, and questions about the service itself."""

from __future__ import annotations

from typing import Final

from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.wire.dispatch import Call
from lakemark_server.admission.ranks import Rank

_SESSION_CONFIG: Final = "config"


class Configuration(Subject, title="Configuration"):
    @method("get_config_value", Rank.READ)
    def config_value(self, call: Call) -> str:
        """The value that the service is configured with, else the client's default."""
        return self._services.config.get(call.args.name or "", call.args.defaultValue or "")

    @method("getMetaConf", Rank.READ)
    def get_meta_conf(self, call: Call) -> str:
        return str(call.session.data.get(_SESSION_CONFIG, {}).get(call.args.key, ""))

    @method("setMetaConf", Rank.WRITE)
    def set_meta_conf(self, call: Call) -> None:
        """Keeps the value for this connection. Nothing in this service depends on it."""
        call.session.data.setdefault(_SESSION_CONFIG, {})[call.args.key] = call.args.value

    @method("flushCache", Rank.WRITE)
    def flush_cache(self, _call: Call) -> None:
        """Does nothing: no answer is out of date."""
