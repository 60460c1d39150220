"""SASL GSSAPI and delegation tokens with the Java client of Hive 2.3, which is Spark's. Run by scripts/test-slow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from lakemark_server.access.token_format import Identifier
from lakemark_server.process import Service
from tests.hive_jvm import SPARK_JARS, HiveJvm, hive_classes
from tests.integration.grpc_server import running_service
from tests.kdc import REALM, SERVICE, Kdc, running_kdc

pytestmark = pytest.mark.slow
USER = f"ann@{REALM}"
PROTECTION = {"auth": "authentication", "auth-int": "integrity", "auth-conf": "privacy"}


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    with running_kdc() as running:
        yield running


@pytest.fixture(autouse=True)
def _environment(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def jvm(kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveJvm]:
    """Logged in with the keytab of a user."""
    flags = [f"-Djava.security.krb5.conf={kdc.environment['KRB5_CONFIG']}"]
    log = tmp_path_factory.mktemp("jvm") / "log"
    with hive_classes([SPARK_JARS / "*"], log, flags) as jvm:
        made = jvm.hadoop.conf.Configuration()
        made.set("hadoop.security.authentication", "kerberos")
        logins = jvm.hadoop.security.UserGroupInformation
        logins.setConfiguration(made)
        logins.loginUserFromKeytab(USER, str(kdc.keytab(USER)))
        yield jvm


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    return kdc.keytab(SERVICE)


def connected(jvm: HiveJvm, service: Service, **settings: str) -> Any:
    port = int(service.hms_uri.rpartition(":")[2])
    given = {
        "hive.metastore.sasl.enabled": "true",
        "hive.metastore.kerberos.principal": f"hive/_HOST@{REALM}",
        "hive.metastore.connect.retries": "1",
        "hive.metastore.failure.retries": "0",
        "hadoop.security.authentication": "kerberos",
        "hive.metastore.uris": f"thrift://localhost:{port}",
        **settings,
    }
    return jvm.client(jvm.hive.conf.HiveConf(), port, given)


def large_table(jvm: HiveJvm) -> Any:
    """In more bytes than one frame of the client's has."""
    api = jvm.metastore.api
    made, storage, serde = api.Table(), api.StorageDescriptor(), api.SerDeInfo()
    storage.setCols(jvm.list_of([api.FieldSchema(f"column_{n}", "string", "of many") for n in range(5_000)]))
    storage.setSerdeInfo(serde)
    made.setDbName("default")
    made.setTableName("large")
    made.setSd(storage)
    return made


@pytest.mark.parametrize("qop", PROTECTION)
def test_hive_23_logs_in(jvm: HiveJvm, keytab: Path, tmp_path: Path, qop: str) -> None:
    settings = {
        "hms_auth": "kerberos",
        "hms_kerberos_principal": SERVICE,
        "hms_kerberos_keytab": str(keytab),
        "hms_sasl_qop": [qop],
    }
    with running_service(tmp_path, hms_enabled=True, hms_port=0, **settings) as service:
        client = connected(jvm, service, **{"hadoop.rpc.protection": PROTECTION[qop]})
        assert list(client.getAllDatabases()) == ["default"]
        client.createTable(large_table(jvm))
        for _ in range(3):
            assert client.getTable("default", "large").getSd().getCols().size() == 5_000
        client.close()
        if qop != "auth":
            with pytest.raises(Py4JJavaError, match="No common protection layer"):
                connected(jvm, service, **{"hadoop.rpc.protection": "authentication"})


def test_hive_23_logs_in_with_a_token(jvm: HiveJvm, keytab: Path, tmp_path: Path) -> None:
    settings = {"hms_auth": "kerberos", "hms_kerberos_principal": SERVICE, "hms_kerberos_keytab": str(keytab)}
    with running_service(tmp_path, hms_enabled=True, hms_port=0, **settings) as service:
        client = connected(jvm, service)
        text = client.getDelegationToken(USER, f"hive/_HOST@{REALM}")
        token = jvm.hadoop.security.token.Token()
        token.decodeFromUrlString(text)
        assert token.encodeToUrlString() == text
        assert token.getKind().toString() == "HIVE_DELEGATION_TOKEN"
        # What Token.decodeIdentifier finds by the service loader of a whole Hive.
        identifier = jvm.hive.thrift.DelegationTokenIdentifier()
        content = bytes(token.getIdentifier())
        identifier.readFields(jvm.java.io.DataInputStream(jvm.java.io.ByteArrayInputStream(content)))
        assert (identifier.getOwner().toString(), identifier.getRenewer().toString()) == ("ann", "hive")
        assert identifier.getMaxDate() - identifier.getIssueDate() == 7 * 86_400_000
        assert Identifier.decoded(content).encoded() == bytes(identifier.getBytes())
        token.setService(jvm.hadoop.io.Text("of the test"))
        jvm.hadoop.security.UserGroupInformation.getLoginUser().addToken(token)
        # Without a principal, there is nothing but the token to log in with.
        by_token = {"hive.metastore.token.signature": "of the test", "hive.metastore.kerberos.principal": ""}
        other = connected(jvm, service, **by_token)
        assert list(other.getAllDatabases()) == ["default"]
        with pytest.raises(Py4JJavaError, match="only hive may"):
            other.renewDelegationToken(text)
        other.cancelDelegationToken(text)
        with pytest.raises(Py4JJavaError, match="was cancelled"):
            connected(jvm, service, **by_token)
        other.close()
        client.close()
