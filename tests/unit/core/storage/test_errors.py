"""What pyarrow's and boto3's libraries say, as errors that name the bucket and what is missing."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from lakemark_core.errors import StorageRefused, StorageUnavailable, Unavailable
from lakemark_core.storage.errors import translated
from lakemark_core.storage.settings import S3Settings

SETTINGS = S3Settings(
    endpoint="http://minio:9000", region="r1", access_key_id="AKIA12345", secret_access_key="hidden"  # noqa: S106
)  # fmt: skip


def arrow(code: str, status: str = "", curl: str = "") -> OSError:
    http = f" (HTTP status {status})" if status else ""
    details = f"curlCode: {curl}, whatever" if curl else "No response body."
    where = "When getting information for key 'k' in bucket 'b'"
    return OSError(f"{where}: AWS Error {code}{http} during HeadObject operation: {details}")


def boto(code: str, status: int = 400) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "ListObjectsV2")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NoCredentialsError(), "no_credentials"),
        (boto("AccessDenied", 403), "access_denied"),
        (boto("403", 403), "access_denied"),
        (arrow("ACCESS_DENIED", "403"), "access_denied"),
        (arrow("UNKNOWN", "403"), "access_denied"),
        (boto("InvalidAccessKeyId", 403), "bad_credentials"),
        (boto("SignatureDoesNotMatch", 403), "bad_credentials"),
        (arrow("INVALID_ACCESS_KEY_ID", "403"), "bad_credentials"),
        (boto("ExpiredToken"), "bad_credentials"),
        (boto("NoSuchBucket", 404), "no_such_bucket"),
        (arrow("NO_SUCH_BUCKET"), "no_such_bucket"),
        (FileNotFoundError("Bucket 'b' not found"), "no_such_bucket"),
        (boto("PermanentRedirect", 301), "wrong_region"),
        (boto("AuthorizationHeaderMalformed"), "wrong_region"),
        (arrow("UNKNOWN", "301"), "wrong_region"),
    ],
)
def test_what_asking_again_cannot_help_is_refused(error: Exception, reason: str) -> None:
    refused = translated("it cannot be read", "s3a://b/k", error, SETTINGS)
    assert isinstance(refused, StorageRefused)
    assert refused.details == {"location": "s3a://b/k", "bucket": "b", "reason": reason}
    assert refused.message.startswith("it cannot be read: bucket 'b' at http://minio:9000: ")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EndpointConnectionError(endpoint_url="http://x"), "endpoint"),
        (arrow("NETWORK_CONNECTION", curl="7"), "endpoint"),
        (ConnectTimeoutError(endpoint_url="http://x"), "timeout"),
        (ReadTimeoutError(endpoint_url="http://x"), "timeout"),
        (arrow("NETWORK_CONNECTION", curl="28"), "timeout"),
        (ConnectionClosedError(endpoint_url="http://x"), "connection"),
        (arrow("NETWORK_CONNECTION", curl="52"), "connection"),
        (boto("SlowDown", 503), "throttled"),
        (arrow("SLOW_DOWN", "503"), "throttled"),
        (arrow("UNKNOWN", "503"), "throttled"),
        (boto("InternalError", 500), "server_error"),
        (arrow("UNKNOWN", "500"), "server_error"),
        (boto("SomethingNew"), "other"),
        (OSError("what nobody knows"), "other"),
    ],
)
def test_what_may_pass_is_unavailable(error: Exception, reason: str) -> None:
    passing = translated("it cannot be read", "s3://b/k", error, SETTINGS)
    assert isinstance(passing, StorageUnavailable)
    assert passing.details["reason"] == reason


def test_messages_say_who_asked_and_no_secret() -> None:
    denied = translated("it cannot be read", "s3://b/k", boto("AccessDenied", 403), SETTINGS)
    assert denied.message == (
        "it cannot be read: bucket 'b' at http://minio:9000: access is denied: a permission is missing, or credentials "
        "are; asked with access key AKIA… [ListObjectsV2: AccessDenied]"
    )
    moved = translated("it cannot be read", "s3://b/k", boto("PermanentRedirect", 301), SETTINGS)
    assert "set LAKEMARK_S3_REGION or AWS_REGION (asked in r1)" in moved.message


def test_other_stores_are_only_unavailable() -> None:
    error = translated("it cannot be read", "gs://b/k", OSError("why"), None)
    assert (type(error), error.message) == (Unavailable, "it cannot be read: why")
