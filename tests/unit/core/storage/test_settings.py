"""How stores are reached: from the environment and a file, by prefix, and with no secret that shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from lakemark_core.errors import InvalidArgument
from lakemark_core.storage import S3Settings, StorageSettings
from lakemark_core.storage.uris import S3Place
from lakemark_server.settings import Settings

SECRET = "do-not-show-me"  # noqa: S105
KEYS = {"LAKEMARK_S3_ACCESS_KEY_ID": "AKIA12345", "LAKEMARK_S3_SECRET_ACCESS_KEY": SECRET}


def at(settings: StorageSettings, uri: str) -> S3Settings:
    return settings.s3_at(S3Place.of(uri))


def test_nothing_set_is_aws_with_its_own_credentials() -> None:
    settings = StorageSettings.from_environment({})
    assert settings == StorageSettings(S3Settings())
    assert settings.s3.who == "with the credentials that the environment has, if any"


def test_the_environment_is_read_ours_before_that_of_aws() -> None:
    aws = {"AWS_ENDPOINT_URL": "http://a:1", "AWS_DEFAULT_REGION": "r1"}
    assert StorageSettings.from_environment(aws).s3 == S3Settings(endpoint="http://a:1", region="r1")
    more = {"AWS_ENDPOINT_URL_S3": "http://b:2", "AWS_REGION": "r2"}
    assert StorageSettings.from_environment(aws | more).s3 == S3Settings(endpoint="http://b:2", region="r2")
    ours = {
        "LAKEMARK_S3_ENDPOINT": "https://c:3",
        "LAKEMARK_S3_REGION": "r3",
        "LAKEMARK_S3_REQUEST_TIMEOUT": "1.5",
        "LAKEMARK_S3_MAX_ATTEMPTS": "9",
        "LAKEMARK_S3_FORCE_VIRTUAL_ADDRESSING": "True",
    }
    assert StorageSettings.from_environment(aws | more | ours).s3 == S3Settings(
        endpoint="https://c:3", region="r3", request_timeout=1.5, max_attempts=9, force_virtual_addressing=True
    )


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"LAKEMARK_S3_ENDPOINT": "host:9000"}, "s3.endpoint 'host:9000' is no URL"),
        ({"LAKEMARK_S3_ACCESS_KEY_ID": "AKIA"}, "together or not at all"),
        (KEYS | {"LAKEMARK_S3_ANONYMOUS": "true"}, "exclude each other"),
        ({"LAKEMARK_S3_ANONYMOUS": "perhaps"}, "s3.anonymous is 'perhaps', and should be true or false"),
        ({"LAKEMARK_S3_MAX_ATTEMPTS": "0"}, "at least 1"),
        ({"LAKEMARK_S3_MAX_ATTEMPTS": "many"}, "should be a whole number"),
        ({"LAKEMARK_S3_CONNECT_TIMEOUT": "0"}, "positive"),
        ({"LAKEMARK_STORAGE_CONFIG": "/no/such/file"}, "/no/such/file cannot be read"),
    ],
)
def test_what_does_not_go_together_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        StorageSettings.from_environment(environment)
    assert SECRET not in str(caught.value)


def test_no_secret_shows() -> None:
    settings = StorageSettings.from_environment(KEYS | {"LAKEMARK_S3_SESSION_TOKEN": SECRET})
    service = Settings(s3_access_key_id=SecretStr("AKIA12345"), s3_secret_access_key=SecretStr(SECRET))
    assert service.storage.s3.secret_access_key == SECRET
    for shown in (repr(settings), str(settings), settings.s3.who, repr(service), str(service), repr(service.storage)):
        assert SECRET not in shown
        assert "12345" not in shown
    assert settings.s3.who == "with access key AKIA…"


def test_the_service_and_its_clients_read_the_same_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "storage.toml"
    config.write_text('["s3://b"]\ns3.region = "r9"\n')
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LAKEMARK_S3_ENDPOINT", "http://c:3")
    monkeypatch.setenv("LAKEMARK_S3_CONNECT_TIMEOUT", "2.5")
    monkeypatch.setenv("LAKEMARK_STORAGE_CONFIG", str(config))
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    assert Settings().storage == StorageSettings.from_environment()
    assert at(Settings().storage, "s3://b/x").region == "r9"


def test_prefixes_have_accounts_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    config = tmp_path / "storage.toml"
    config.write_text(
        f"""
["s3a://lake/raw/"]
s3.endpoint = "http://minio:9000"
s3.access-key-id = "RAW"
s3.secret-access-key-env = "RAW_SECRET"

["s3://lake/raw/old"]
"s3.access-key-id" = "OLD"
"s3.secret-access-key-file" = "{tmp_path}/key"

["s3://open"]
s3.anonymous = true
"""
    )
    settings = StorageSettings.from_environment(
        KEYS | {"LAKEMARK_STORAGE_CONFIG": str(config), "RAW_SECRET": "s", "LAKEMARK_S3_MAX_ATTEMPTS": "7"}
    )
    general, raw, old, free = (
        at(settings, f"s3://{path}") for path in ("lake/rawer", "lake/raw/t", "lake/raw/old", "open/x")
    )
    assert (general.access_key_id, raw.access_key_id, old.access_key_id, free.access_key_id) == (
        "AKIA12345", "RAW", "OLD", ""
    )  # fmt: skip
    assert (raw.secret_access_key, old.secret_access_key, free.secret_access_key) == ("s", SECRET, "")
    assert (raw.endpoint, old.endpoint, free.anonymous) == ("http://minio:9000", "", True)
    assert {each.max_attempts for each in (general, raw, old, free)} == {7}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (f'["s3://b"]\ns3.secret-access-key = "{SECRET}"', "does not stand in this file: name the variable"),
        ('["s3://b"]\ns3.secret-access-key-env = "NOT_THERE"', "there is no variable NOT_THERE"),
        ('["s3://b"]\ns3.secret-access-key-file = "/not/there"', "/not/there cannot be read"),
        ('["s3://b"]\ns3.end-point = "http://x"', "s3.end-point is no setting; there are s3.access-key-id"),
        ('["s3://b"]\nregion = "x"', "region is no setting"),
        ('[prefix]\ns3.region = "x"', "named by the prefix"),
        ('["s3://b"', "cannot be read"),
        ('x = 1', "it is no section"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_file_is_said_without_secrets(tmp_path: Path, section: str, message: str) -> None:
    config = tmp_path / "storage.toml"
    config.write_text(section)
    with pytest.raises(InvalidArgument, match=message) as caught:
        StorageSettings.from_environment({"LAKEMARK_STORAGE_CONFIG": str(config)})
    assert SECRET not in str(caught.value)
