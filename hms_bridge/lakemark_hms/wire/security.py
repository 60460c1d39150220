"""Which layers a port has, and who runs the checks of those who log in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from lakemark_core.errors import InvalidArgument
from lakemark_hms.principals import service_principal
from lakemark_hms.wire.digest import Accounts, DigestMd5
from lakemark_hms.wire.layers import Certificates, Layer, Stacked
from lakemark_hms.wire.sasl import Mechanisms, Plain, SaslLayer

TOKENS: Final = "DIGEST-MD5"
"""The mechanism by which clients log in with a token."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Security:
    """What a port demands of its clients: TLS, SASL, both or nothing."""

    certificates: Certificates | None = None
    mechanisms: Mechanisms | None = None

    def layers(self, message_bytes_max: int) -> tuple[Layer | None, SaslLayer | None]:
        """The layers of a new connection as one, and the one among them that has to log its client in."""
        tls = self.certificates.layer(log.error) if self.certificates is not None else None
        sasl = SaslLayer(self.mechanisms, message_bytes_max) if self.mechanisms is not None else None
        if tls is not None and sasl is not None:
            return Stacked(tls, sasl), sasl
        return tls or sasl, sasl


def plain(
    check: Callable[[str, str], bool], known: Callable[[str, str], bool] = lambda _user, _password: False
) -> Mechanisms:
    """The mechanism PLAIN with a check of user and password, which may wait; ``known`` may not.

    ``known``: whether the password is known to fit, so that it needs no check.
    """

    def on_error(error: Exception) -> None:
        log.error("the check of a password failed", exc_info=error)

    return {"PLAIN": lambda: Plain(check, known, on_error)}


def kerberos(principal: str, keytab: str, qops: Collection[str]) -> Mechanisms:
    """The mechanism GSSAPI for the tickets of a service, ``service/host@REALM``.

    ``qops``: the qualities of protection that clients may choose: auth, auth-int, auth-conf. Raises InvalidArgument.
    """
    name, realm = service_principal(principal)
    try:
        from lakemark_hms.wire.kerberos import Acceptor, Gssapi
    except ImportError as error:
        raise InvalidArgument(
            f"hms_auth with kerberos needs the extra: pip install 'lakemark[kerberos]', and libkrb5 ({error})"
        ) from error
    acceptor = Acceptor.of(name, realm, keytab, qops)
    return {"GSSAPI": lambda: Gssapi(acceptor)}


def tokens(accounts: Accounts) -> Mechanisms:
    """The mechanism DIGEST-MD5 for delegation tokens."""
    return {TOKENS: lambda: DigestMd5(accounts)}
