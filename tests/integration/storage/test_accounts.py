"""Whose requests they are: from the environment, from the settings of a service, by prefix; and no secret shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark.errors import StorageRefused
from lakemark_core import storage
from lakemark_server.settings import Settings
from tests.integration.storage.conftest import S3World
from tests.s3_proxy import S3Proxy
from tests.s3_server import ACCESS_KEY, REGION, SECRET_KEY, Bucket, MotoServer, S3Server


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    """One that believes any account."""
    server = MotoServer()
    yield server
    server.close()


def accounts(proxy: S3Proxy) -> set[str]:
    return {request.account for request in proxy.requests}


def write_and_look(uri: str) -> None:
    """By pyarrow, as writers do, and by boto3, as the service does."""
    system, path = storage.open_location(f"{uri}/a/x.parquet")
    with system.open_output_stream(path) as sink:
        pq.write_table(pa.table({"id": [1]}), sink)
    assert not storage.is_empty(f"{uri}/a")


def test_a_process_that_is_told_nothing_does_as_its_environment_says(
    monkeypatch: pytest.MonkeyPatch, proxy: S3Proxy, bucket: Bucket
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "FROM-AWS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    write_and_look(bucket.uri)
    assert accounts(proxy) == {"FROM-AWS"}
    storage.configure(None)
    proxy.clear()
    monkeypatch.setenv("LAKEMARK_S3_ACCESS_KEY_ID", "OUR-OWN")
    monkeypatch.setenv("LAKEMARK_S3_SECRET_ACCESS_KEY", SECRET_KEY)
    write_and_look(bucket.uri.replace("s3:", "s3a:"))
    assert accounts(proxy) == {"OUR-OWN"}


def test_prefixes_have_accounts_of_their_own(
    tmp_path: Path, start: Callable[..., S3World], s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.make_bucket("partner")
    monkeypatch.setenv("PARTNER_SECRET", SECRET_KEY)
    config = tmp_path / "storage.toml"
    config.write_text(
        '["s3://partner/lake"]\ns3.access-key-id = "PARTNER"\ns3.secret-access-key-env = "PARTNER_SECRET"\n'
        '["s3://partner/open"]\ns3.anonymous = true\n'
    )
    world = start(storage_config=str(config))
    assert accounts(world.proxy) == {ACCESS_KEY}
    world.client.databases.create("partner", location="s3://partner/lake/db")
    world.table("partner.t")
    world.proxy.clear()
    world.append("partner.t", 1, 2)
    assert world.months("partner.t") == [1, 2]
    world.client.tables.drop("partner.t", now=True)
    assert accounts(world.proxy) == {"PARTNER"}
    world.proxy.clear()
    assert storage.is_empty("s3://partner/open")
    assert not storage.open_location("s3://partner/open/x")[0].get_file_info("partner/open/x").is_file
    assert accounts(world.proxy) == {""}


def test_no_secret_is_in_an_error_or_a_log_line(
    start: Callable[..., S3World], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.s3_proxy._REFUSALS", {"slow down": (403, "Forbidden", "AccessDenied", "No.")})
    world = start(log_level="debug", s3_max_attempts=1)
    name = world.table()
    world.append(name, 1)
    with world.proxy.disturbing(lambda _: "slow down"):
        for act in (
            lambda: world.months(name),
            lambda: world.append(name, 2),
            lambda: world.client.databases.create("d"),
            lambda: storage.delete_directory(f"{world.bucket.uri}/wh"),
        ):
            with pytest.raises(StorageRefused) as caught:
                act()
            assert caught.value.details["reason"] == "access_denied"
            assert f"bucket '{world.bucket.name}'" in caught.value.message
            assert f"asked with access key {ACCESS_KEY[:4]}…" in caught.value.message
            assert SECRET_KEY not in repr(caught.value) + caught.value.message + str(caught.value.details)
    written = capfd.readouterr()
    assert SECRET_KEY not in written.out + written.err


def test_an_endpoint_where_nobody_listens(bucket: Bucket) -> None:
    from lakemark.errors import StorageUnavailable
    from lakemark_core.storage import S3Settings, StorageSettings

    settings = S3Settings("http://127.0.0.1:1", REGION, ACCESS_KEY, SECRET_KEY, max_attempts=1)
    storage.configure(StorageSettings(settings))
    for act in (lambda: storage.is_empty(bucket.uri), lambda: storage.make_directory(f"{bucket.uri}/a")):
        with pytest.raises(
            StorageUnavailable, match=r"at http://127.0.0.1:1: the endpoint cannot be reached"
        ) as caught:
            act()
        assert caught.value.details["reason"] == "endpoint"


def test_a_process_without_credentials_says_so(
    monkeypatch: pytest.MonkeyPatch, proxy: S3Proxy, bucket: Bucket, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("LAKEMARK_S3_ENDPOINT", proxy.endpoint)
    with pytest.raises(StorageRefused, match="no credentials are found: set LAKEMARK_S3_ACCESS_KEY_ID"):
        storage.is_empty(bucket.uri)


def test_schemes_of_engines_are_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().engine_schemes == {"s3": "s3a"}
    monkeypatch.setenv("LAKEMARK_ENGINE_SCHEMES", "{}")
    assert Settings().engine_schemes == {}
