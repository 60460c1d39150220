"""Delegation tokens, which stand for logins."""

from __future__ import annotations

from lakemark_core.errors import UnsupportedOperation
from lakemark_hms.handlers.subject import Subject, method
from lakemark_hms.tokens import TokenDesk
from lakemark_hms.wire.dispatch import Call
from lakemark_server.admission.ranks import Rank


class Tokens(Subject, title="Delegation tokens"):
    @method("get_delegation_token", Rank.WRITE)
    def issue(self, call: Call) -> str:
        args = call.args
        return self._desk(call).issue(call.session, args.token_owner, args.renewer_kerberos_principal_name)

    @method("renew_delegation_token", Rank.WRITE)
    def renew(self, call: Call) -> int:
        return self._desk(call).renew(call.session, call.args.token_str_form)

    @method("cancel_delegation_token", Rank.WRITE)
    def cancel(self, call: Call) -> None:
        self._desk(call).cancel(call.session, call.args.token_str_form)

    def _desk(self, call: Call) -> TokenDesk:
        desk = self._services.tokens
        if desk is None:
            raise UnsupportedOperation(
                f"{call.name}: delegation tokens stand for logins by SASL, and this port has none that they could "
                "(hms_auth, and auth in hms_sasl_qop); switch off hive.metastore.sasl.enabled "
                "(hadoop.security.authentication=simple) in the client if it needs no login"
            )
        return desk
