"""A real Kerberos KDC with a realm of its own, for tests."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

REALM: Final = "LAKE.TEST"
SERVICE: Final = f"hive/localhost@{REALM}"
_PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PLACES: Final = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"


class Kdc:
    """A running KDC. ``environment`` is what programs need to use it."""

    def __init__(self, realm: Any) -> None:
        self._realm = realm
        self.environment: dict[str, str] = realm.env
        self.directory = Path(realm.tmpdir)

    def keytab(self, *principals: str) -> Path:
        """A file with the keys of new principals."""
        path = self.directory / f"{principals[0].replace('/', '-')}.keytab"
        for principal in principals:
            self._realm.addprinc(principal)
            self._realm.extract_keytab(principal, str(path))
        return path

    def new_key(self, principal: str) -> None:
        """Changes a principal's key in the KDC, so that its keytab is outdated."""
        self._realm.run_kadminl(["change_password", "-randkey", principal])

    def tickets(self, user: str) -> Path:
        """The tickets of a user, who is made if necessary, as a file for KRB5CCNAME."""
        path = self.directory / f"{user.replace('/', '-')}.tickets"
        if not path.exists():
            self._realm.addprinc(f"{user}@{REALM}", f"secret-of-{user}")
            self._realm.kinit(f"{user}@{REALM}", f"secret-of-{user}", ["-c", str(path)])
        return path


@contextmanager
def running_kdc() -> Iterator[Kdc]:
    """Skips the test, with the reason, where there are no programs for it."""
    k5test = pytest.importorskip("k5test", reason="no Kerberos here: scripts/setup --kerberos brings what pip can")
    pytest.importorskip("gssapi", reason="no Kerberos here: scripts/setup --kerberos brings what pip can")
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PLACES) is None]
    if missing:
        pytest.skip(f"no KDC here: {', '.join(missing)} (Debian: krb5-kdc, krb5-admin-server, krb5-user)")
    with pytest.MonkeyPatch.context() as patch:
        # It asks DNS for the name of the machine with each line of its configuration, and DNS may be slow or away.
        patch.setattr(k5test.K5Realm, "hostname", "localhost")
        realm = k5test.K5Realm(
            realm=REALM,
            portbase=_free_ports(),
            krb5_conf={
                "libdefaults": {"dns_canonicalize_hostname": "false", "rdns": "false", "udp_preference_limit": "1"}
            },
            create_user=False,
            create_host=False,
            get_creds=False,
        )
    try:
        yield Kdc(realm)
    finally:
        realm.stop()


def _free_ports() -> int:
    """The first of ten ports in a row, of which the first one is free."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port if port < 65_500 else 61_000
