"""What is taken for a secret, and what is not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark_core.errors import NotFound
from lakemark_core.redaction import redacted

SECRET = "pLaNtEd/+SeCrEt"  # noqa: S105


@pytest.mark.parametrize(
    "text",
    [
        f"s3://{SECRET.replace('/', '')}@bucket/x",
        f"s3a://KEY:{SECRET}@bucket/x",
        f"location 's3://AKIA:{SECRET}@b/x?endpoint_override=h:1' is wrong",
        f"https://u:{SECRET}@host:8443/path",
        f"thrift://u:{SECRET}@host:9083,thrift://v:{SECRET}@other:9083",
        f"postgresql://lake:{SECRET}@host/db",
        f"abfss://container:{SECRET}@account.dfs.core.windows.net/x",
        f"https://b.s3.amazonaws.com/k?X-Amz-Algorithm=A&X-Amz-Signature={SECRET}&x=1",
        f"/k?X-Amz-Signature={SECRET}",
        f"https://hooks.example/in?{SECRET}",
        f"refused: access_key={SECRET}, retry",
        f"secret_access_key={SECRET}",
        f"sv=2024&sig={SECRET}",
        f"PASSWORD={SECRET}",
        f"Authorization: Bearer {SECRET}",
    ],
)
def test_secrets_are_taken_out(text: str) -> None:
    assert SECRET not in redacted(text)
    assert "SeCrEt" not in redacted(text)
    assert redacted(redacted(text)) == redacted(text)
    error = NotFound(f"there is no {text}", location=text)
    assert "SeCrEt" not in f"{error!r} {error} {error.message} {error.details}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s3://bucket/path/a@b",
        "hdfs://names:8020/user/a@b/t",
        "abfss://container@account.dfs.core.windows.net/x",
        "file:/warehouse/sales.db/t@v12",
        "table 'sales.orders@v12' does not exist",
        "predicate 'a = 1 and b != 2' cannot be read at line 1, column 3",
        "@hive#sales is not a database; what now?",
        "the token is unknown: begin with the first page",
        "a basic error",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert redacted(text) == text


@given(st.text("s3:/@?=&kKey.'\" \n", max_size=200))
def test_any_text_can_be_redacted_twice(text: str) -> None:
    once = redacted(text)
    assert redacted(once) == once


@pytest.mark.parametrize(
    "text", ["://a:" * 20_000 + "@", "a:/?" * 20_000, "token" * 20_000 + "=", "a" * 300_000 + "@?="]
)
def test_no_text_takes_long(text: str) -> None:
    begun = time.process_time()
    redacted(text)
    assert time.process_time() - begun < 5.0
