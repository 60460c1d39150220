"""What object stores and their libraries say, as Lakemark's errors: which bucket, and what is missing.

pyarrow raises OSError with a text that names the code of S3 or of curl; boto3 raises exceptions with codes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from lakemark_core.errors import LakemarkError, StorageRefused, StorageUnavailable, Unavailable
from lakemark_core.storage.settings import S3Settings
from lakemark_core.storage.uris import S3Place, is_s3

_ARROW: Final = re.compile(
    r"AWS Error (?P<code>[A-Z_0-9]+)(?: \(HTTP status (?P<status>\d+)\))?(?: during (?P<operation>\w+))?"
)
_CURL: Final = re.compile(r"curlCode: (\d+)")


@dataclass(frozen=True, slots=True)
class Reason:
    """``name`` travels as the detail ``reason``, ``text`` says what is missing. ``again``: asking again may help."""

    name: str
    text: str
    again: bool = False


_NO_CREDENTIALS: Final = Reason(
    "no_credentials",
    "no credentials are found: set LAKEMARK_S3_ACCESS_KEY_ID and LAKEMARK_S3_SECRET_ACCESS_KEY, or AWS's own variables "
    "or profile, or LAKEMARK_S3_ANONYMOUS=true for a public bucket",
)
_BAD_CREDENTIALS: Final = Reason("bad_credentials", "the credentials are unknown there, wrong or expired")
_ACCESS_DENIED: Final = Reason("access_denied", "access is denied: a permission is missing, or credentials are")
_NO_SUCH_BUCKET: Final = Reason("no_such_bucket", "there is no such bucket: make it first, or correct the location")
_WRONG_REGION: Final = Reason("wrong_region", "the bucket lies in another region: set LAKEMARK_S3_REGION or AWS_REGION")
_ENDPOINT: Final = Reason("endpoint", "the endpoint cannot be reached", again=True)
_THROTTLED: Final = Reason("throttled", "the store asks for fewer requests, and did so at every attempt", again=True)
_TIMEOUT: Final = Reason("timeout", "the store did not answer in time", again=True)
_CONNECTION: Final = Reason("connection", "the connection was lost at every attempt", again=True)
_SERVER: Final = Reason("server_error", "the store failed", again=True)
_OTHER: Final = Reason("other", "the store cannot do this now", again=True)

_BY_CODE: Final = {
    "ACCESSDENIED": _ACCESS_DENIED,
    "ALLACCESSDISABLED": _ACCESS_DENIED,
    "FORBIDDEN": _ACCESS_DENIED,
    "403": _ACCESS_DENIED,
    "INVALIDACCESSKEYID": _BAD_CREDENTIALS,
    "INVALIDCLIENTTOKENID": _BAD_CREDENTIALS,
    "SIGNATUREDOESNOTMATCH": _BAD_CREDENTIALS,
    "EXPIREDTOKEN": _BAD_CREDENTIALS,
    "INVALIDTOKEN": _BAD_CREDENTIALS,
    "NOSUCHBUCKET": _NO_SUCH_BUCKET,
    "PERMANENTREDIRECT": _WRONG_REGION,
    "AUTHORIZATIONHEADERMALFORMED": _WRONG_REGION,
    "301": _WRONG_REGION,
    "SLOWDOWN": _THROTTLED,
    "THROTTLING": _THROTTLED,
    "REQUESTLIMITEXCEEDED": _THROTTLED,
    "SERVICEUNAVAILABLE": _THROTTLED,
    "503": _THROTTLED,
    "INTERNALERROR": _SERVER,
    "INTERNALFAILURE": _SERVER,
    "500": _SERVER,
    "REQUESTTIMEOUT": _TIMEOUT,
    "NETWORKCONNECTION": _CONNECTION,
}
_BY_CURL: Final = {"6": _ENDPOINT, "7": _ENDPOINT, "35": _ENDPOINT, "60": _ENDPOINT, "28": _TIMEOUT}
_BY_BOTOCORE: Final = {
    "NoCredentialsError": _NO_CREDENTIALS,
    "PartialCredentialsError": _NO_CREDENTIALS,
    "CredentialRetrievalError": _NO_CREDENTIALS,
    "EndpointConnectionError": _ENDPOINT,
    "SSLError": _ENDPOINT,
    "ProxyConnectionError": _ENDPOINT,
    "ConnectTimeoutError": _TIMEOUT,
    "ReadTimeoutError": _TIMEOUT,
    "ConnectionClosedError": _CONNECTION,
    "ResponseStreamingError": _CONNECTION,
}


def translated(what: str, uri: str, error: Exception, settings: S3Settings | None, /, **details: str) -> LakemarkError:
    """``what``: the beginning of a sentence that says what could not be done. ``settings``: those of an S3 location.

    The answer is StorageRefused if asking again cannot help, StorageUnavailable if it can; for other stores than S3
    Unavailable.
    """
    if not is_s3(uri):
        return Unavailable(f"{what}: {error}", location=uri, **details)
    reason, said = _reason(error)
    bucket = S3Place.of(uri).bucket
    where = f" at {settings.endpoint}" if settings is not None and settings.endpoint else ""
    who = f" {settings.who}" if settings is not None and reason in (_ACCESS_DENIED, _BAD_CREDENTIALS) else ""
    region = (
        f" (asked in {settings.region})" if settings is not None and settings.region and reason is _WRONG_REGION else ""
    )
    kind = StorageUnavailable if reason.again else StorageRefused
    return kind(
        f"{what}: bucket {bucket!r}{where}: {reason.text}{region}{who and f'; asked{who}'} [{said}]",
        location=uri,
        bucket=bucket,
        reason=reason.name,
        **details,
    )


def _reason(error: Exception) -> tuple[Reason, str]:
    """And what was said, in short: no text of the store's, which may hold keys."""
    answer: Any = getattr(error, "response", None)
    if isinstance(answer, dict):
        code = str(answer.get("Error", {}).get("Code", ""))
        status = str(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        return _by_code(code, status), f"{getattr(error, 'operation_name', 'request')}: {code or status}"
    for kind in type(error).__mro__:
        if kind.__name__ in _BY_BOTOCORE:
            return _BY_BOTOCORE[kind.__name__], type(error).__name__
    text = str(error)
    curl = _CURL.search(text)
    match = _ARROW.search(text)
    if match is None:
        known = re.search(r"Bucket '[^']*' not found", text)
        return (_NO_SUCH_BUCKET, "bucket not found") if known else (_OTHER, text[:200])
    operation = f"{match['operation']}: " if match["operation"] else ""
    if curl and curl[1] in _BY_CURL:
        return _BY_CURL[curl[1]], f"{operation}curl {curl[1]}"
    status = f" {match['status']}" if match["status"] else ""
    return _by_code(match["code"], match["status"] or ""), f"{operation}{match['code']}{status}"


def _by_code(code: str, status: str) -> Reason:
    return _BY_CODE.get(code.replace("_", "").upper()) or _BY_CODE.get(status) or _OTHER
