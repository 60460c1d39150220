"""TLS and SASL PLAIN with Hive's own Java clients: 4.0.1, and 2.3, which is Spark's.

Hive 2.3 has no PLAIN. Run by scripts/test-slow, because the classes of Hive 4.0.1 come from Maven Central.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers.jars import jars
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from lakemark_server.access.passwords import user_line
from lakemark_server.process import Service
from tests.certificates import Authority
from tests.hive_jvm import SPARK_JARS, hive_classes
from tests.integration.grpc_server import running_service

pytestmark = pytest.mark.slow
SECRET = "open sesame"  # noqa: S105
STORE_SECRET = "changeit"  # noqa: S105


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def truststore(authority: Authority) -> Path:
    trusted = PKCS12Certificate(x509.load_pem_x509_certificate(authority.ca.read_bytes()), b"authority")
    path = authority.ca.with_name("truststore.p12")
    path.write_bytes(serialize_java_truststore([trusted], BestAvailableEncryption(STORE_SECRET.encode())))
    return path


@pytest.fixture
def settings(authority: Authority) -> dict[str, Any]:
    own = authority.signed("service")
    return {
        "hms_enabled": True,
        "hms_port": 0,
        "hms_tls_certificate": str(own.certificate),
        "hms_tls_key": str(own.key),
    }


@pytest.fixture
def service(tmp_path: Path, settings: dict[str, Any]) -> Iterator[Service]:
    with running_service(tmp_path, **settings) as running:
        yield running


@pytest.fixture
def closed_service(tmp_path: Path, settings: dict[str, Any]) -> Iterator[Service]:
    """With passwords beside TLS."""
    users = tmp_path / "users"
    users.write_text(user_line("ann", SECRET))
    users.chmod(0o600)
    with running_service(tmp_path, **settings, hms_auth="plain", users_file=str(users)) as running:
        yield running


def port_of(service: Service) -> int:
    return int(service.hms_uri.rpartition(":")[2])


def test_hive_23_over_tls(service: Service, truststore: Path, tmp_path: Path) -> None:
    over_tls = {
        "hive.metastore.use.SSL": "true",
        "hive.metastore.truststore.path": str(truststore),
        "hive.metastore.truststore.password": STORE_SECRET,
    }
    with hive_classes([SPARK_JARS / "*"], tmp_path / "jvm.log") as jvm:
        client = jvm.client(jvm.hive.conf.HiveConf(), port_of(service), over_tls)
        assert list(client.getAllDatabases()) == ["default"]
        assert client.getDatabase("default").getName() == "default"
        client.close()


def test_hive_4_logs_in(closed_service: Service, truststore: Path, tmp_path: Path) -> None:
    login = {
        "metastore.use.SSL": "true",
        "metastore.truststore.path": str(truststore),
        "metastore.truststore.password": STORE_SECRET,
        "metastore.client.auth.mode": "PLAIN",
        "metastore.client.plain.username": "ann",
        "metastore.thrift.connection.retries": "1",
    }
    with hive_classes(jars("hive 4"), tmp_path / "jvm.log") as jvm:

        def connected(password: str) -> Any:
            made = jvm.metastore.conf.MetastoreConf.newMetastoreConf()
            made.set("metastore.thrift.uris", f"thrift://127.0.0.1:{port_of(closed_service)}")
            return jvm.client(made, port_of(closed_service), {**login, "ann": password})

        client = connected(SECRET)
        assert list(client.getAllDatabases()) == ["default"]
        client.close()
        with pytest.raises(Py4JJavaError, match="password is wrong"):
            connected("guess")
