"""Names of Kerberos, and the users that they stand for."""

from __future__ import annotations

import socket

import pytest

from lakemark_core.errors import InvalidArgument
from lakemark_hms.principals import service_principal, short_name


@pytest.mark.parametrize(
    ("principal", "user"),
    [
        ("ann@LAKE.TEST", "ann"),
        ("ann/admin@LAKE.TEST", "ann"),
        ("hive/node7.lake.test@LAKE.TEST", "hive"),
        ("ann@OTHER.TEST", None),
        ("ann@lake.test", None),
        ("ann", None),
        ("@LAKE.TEST", None),
        ("ann/@LAKE.TEST", None),
        ("a/b/c@LAKE.TEST", None),
        ("ann@OTHER@LAKE.TEST", None),
        (r"ann\@OTHER@LAKE.TEST", None),
        (r"ann\/x@LAKE.TEST", None),
        ("ann bob@LAKE.TEST", None),
        ("ann@LAKE.TEST\n", None),
    ],
)
def test_the_user_of_a_principal(principal: str, user: str | None) -> None:
    assert short_name(principal, "LAKE.TEST") == user


def test_the_principal_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: "Node7.Lake.Test")
    assert service_principal("hive/_HOST@LAKE.TEST") == ("hive/node7.lake.test@LAKE.TEST", "LAKE.TEST")
    assert service_principal("hive/x@LAKE.TEST") == ("hive/x@LAKE.TEST", "LAKE.TEST")
    for wrong in ("hive", "hive@LAKE.TEST", "hive/x", "hive/x@", "/x@LAKE.TEST", "hive/x/y@LAKE.TEST"):
        with pytest.raises(InvalidArgument, match="is not service/host@REALM"):
            service_principal(wrong)
