"""Delegation tokens as clients of this protocol ask for them, and log in with them."""

from __future__ import annotations

import base64
import binascii
import logging
from typing import Final

from lakemark_core.errors import InvalidArgument, LakemarkError
from lakemark_hms.errors import NotGiven
from lakemark_hms.principals import short_name
from lakemark_hms.wire.digest import Account
from lakemark_hms.wire.dispatch import Session
from lakemark_hms.wire.sasl import Refused
from lakemark_hms.wire.security import TOKENS
from lakemark_server.access.tokens import DelegationTokens

log = logging.getLogger(__name__)

_LATER: Final = "the service cannot look up the delegation token now: try again later"


class TokenDesk:
    """Gives tokens to who has logged in. ``realm``: that of the users, if they log in by Kerberos, or ""."""

    def __init__(self, tokens: DelegationTokens, realm: str) -> None:
        self._tokens = tokens
        self._realm = realm

    def issue(self, session: Session, owner: str | None, renewer: str | None) -> str:
        """A token for the user of the session. Raises InvalidArgument for any other owner."""
        if not owner:
            raise NotGiven("get_delegation_token needs the owner of the token")
        if session.mechanism == TOKENS:
            raise InvalidArgument("who has logged in with a delegation token gets no other one")
        user = _user(session)
        if owner != user and self._user_of(owner) != user:
            raise InvalidArgument(f"{user} gets no delegation token for {owner}: nobody may act for another user")
        return self._tokens.issue(user, self._user_of(renewer) if renewer else "")

    def renew(self, session: Session, token: str | None) -> int:
        """When the token expires, in ms. Raises InvalidArgument."""
        return self._tokens.renew(token or "", _user(session))

    def cancel(self, session: Session, token: str | None) -> None:
        """Raises InvalidArgument."""
        self._tokens.cancel(token or "", _user(session))

    def account(self, name: str) -> Account | Refused:
        """Who may log in by this name: the identifier of a token, in base 64. Never raises."""
        try:
            secret = self._tokens.secret_of(base64.b64decode(name, validate=True))
        except binascii.Error:
            return Refused("the name is no identifier of a delegation token")
        except InvalidArgument as error:
            return Refused(error.message)
        except LakemarkError as error:
            return Refused(_LATER, error.message)
        except Exception as error:  # a defect must not leave the client without an answer
            log.exception("the look-up of a delegation token failed")
            return Refused(_LATER, type(error).__name__)
        return Account(secret.owner, base64.b64encode(secret.password).decode())

    def _user_of(self, name: str) -> str:
        """The user whom a name stands for: a principal, or the name of a user. Raises InvalidArgument."""
        if not self._realm:
            return name
        user = short_name(name, self._realm) if "@" in name else name.partition("/")[0]
        if not user:
            raise InvalidArgument(f"{name} is no principal of {self._realm}")
        return user


def _user(session: Session) -> str:
    if not session.proven or session.user is None:
        raise InvalidArgument("delegation tokens are for clients that have logged in")
    return session.user
