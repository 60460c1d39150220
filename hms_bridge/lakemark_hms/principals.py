"""Names of Kerberos, and the users that they stand for."""

from __future__ import annotations

import re
import socket
from typing import Final

from lakemark_core.errors import InvalidArgument

_PRINCIPAL: Final = re.compile(r"([^/@\\\s]+)(?:/([^/@\\\s]+))?@([^/@\\\s]+)")


def short_name(principal: str, realm: str) -> str | None:
    """The user whom a principal stands for; None: it is not of the realm, or none of one or two parts.

    The rule is Hadoop's default: ``ann@REALM`` and ``ann/admin@REALM`` both are the user ``ann``.
    """
    parts = _PRINCIPAL.fullmatch(principal)
    return parts[1] if parts is not None and parts[3] == realm else None


def service_principal(given: str) -> tuple[str, str]:
    """The principal ``service/host@REALM`` of this service, and its realm; the host ``_HOST`` is this machine's name.

    Raises InvalidArgument.
    """
    parts = _PRINCIPAL.fullmatch(given)
    if parts is None or parts[2] is None:
        raise InvalidArgument(f"hms_kerberos_principal={given} is not service/host@REALM, or service/_HOST@REALM")
    service, host, realm = parts.groups()
    return f"{service}/{socket.getfqdn().lower() if host == '_HOST' else host}@{realm}", realm
