"""Locations as pyarrow's file systems, and the clients of boto3 for what pyarrow lacks.

Those of S3 are kept, because a new one would look for its region and credentials.
"""

from __future__ import annotations

import getpass
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from pyarrow import fs

from lakemark_core.errors import FailedPrecondition, LakemarkError, Unavailable
from lakemark_core.storage.errors import translated
from lakemark_core.storage.settings import S3Settings, StorageSettings
from lakemark_core.storage.uris import S3Place, authority_and_path, is_hdfs, is_s3, scheme_of

_WITH_DIRECTORIES: Final = ("local", "hdfs", "viewfs")
_WEBHDFS: Final = "webhdfs"  # a part of what pyarrow calls the type of such a file system of fsspec
_WITHOUT_HADOOP: Final = (
    "; it needs a Hadoop with libhdfs (HADOOP_HOME, ARROW_LIBHDFS_DIR, CLASSPATH), or WebHDFS: "
    "set LAKEMARK_WEBHDFS=http://<name node>:9870 and pip install 'lakemark[hdfs]'"
)
_KEPT_MAX: Final = 64
_CONNECTIONS_MAX: Final = 32
_REGION_OF_ENDPOINTS: Final = "us-east-1"  # what servers other than AWS take when they have no regions

_PAUSE_S_FIRST, _PAUSE_S_MOST = 0.1, 5.0
_UNSTORED: Final = "INTERNAL_FAILURE"

T = TypeVar("T")

_lock = threading.Lock()
_settings: StorageSettings | None = None


def configure(settings: StorageSettings | None) -> None:
    """For all locations that this process opens from now on; None: as its environment says, which is the default."""
    global _settings  # noqa: PLW0603 - a process reaches its stores in one way, whoever opens them
    with _lock:
        _settings = settings
        _s3_file_system.cache_clear()
        s3_client.cache_clear()
        _other_file_system.cache_clear()
        _web_file_system.cache_clear()
        _region_of.cache_clear()


def s3_settings(place: S3Place) -> S3Settings:
    """Those that count there, with a region. Raises InvalidArgument, StorageRefused, StorageUnavailable."""
    settings = _settings_at(place)
    if settings.region:
        return settings
    region = _REGION_OF_ENDPOINTS if settings.endpoint else _region_of(place.bucket, settings)
    return replace(settings, region=region)


def s3_endpoint(uri: str) -> str:
    """Of the service that has the bucket; "" for AWS. Raises InvalidArgument."""
    return _settings_at(S3Place.of(uri)).endpoint


def call_seconds() -> float:
    """How long a request of a client waits for a store. Raises InvalidArgument."""
    return _current().call_seconds


def _settings_at(place: S3Place) -> S3Settings:
    """Without a region if none is set. Raises InvalidArgument."""
    return _current().s3_at(place)


def _current() -> StorageSettings:
    """Those of the process. Raises InvalidArgument."""
    global _settings  # noqa: PLW0603
    with _lock:
        if _settings is None:
            _settings = StorageSettings.from_environment()
        return _settings


def open_location(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a location and the path in it; nothing is asked of the store but the region of a bucket.

    Raises Unavailable if pyarrow cannot reach that file system, StorageRefused if there is no such bucket.
    """
    if not scheme_of(uri):
        return fs.LocalFileSystem(), str(Path(uri).absolute())
    if uri.startswith("file:"):
        return fs.LocalFileSystem(), "/" + uri.removeprefix("file:").lstrip("/")
    if is_s3(uri):
        place = S3Place.of(uri)
        return _s3_file_system(s3_settings(place)), place.path
    root, path = authority_and_path(uri)
    try:
        system, base = _web_file_system(_webhdfs()) if is_hdfs(uri) and _webhdfs() else _other_file_system(root)
    except (ValueError, OSError, ImportError, NotImplementedError) as error:
        said = str(error).partition("\n")[0]  # where libhdfs was looked for are many lines
        advice = _WITHOUT_HADOOP if is_hdfs(uri) else ""
        raise Unavailable(
            f"the file system of {uri!r} cannot be reached from here: {said}{advice}", location=uri
        ) from error
    return system, f"{base.rstrip('/')}/{path}" if path else base


def storage_error(what: str, system: fs.FileSystem, path: str, error: Exception) -> LakemarkError:
    """What ``system`` raised about a path in it. ``what``: the beginning of a sentence that says what was not done.

    The answer is StorageRefused if asking again cannot help, StorageUnavailable if it can; for other stores than S3
    Unavailable.
    """
    if system.type_name != "s3":
        return Unavailable(f"{what}: {error}", location=path, path=path)
    uri = f"s3://{path}"
    return translated(what, uri, error, _settings_at(S3Place.of(uri)), path=path)


def again(system: fs.FileSystem, path: str, read: Callable[[], T]) -> T:
    """What ``read`` returns, which reads the file of ``system`` at ``path`` and may do so several times.

    The library of S3 asks again by itself, except when the server's complaint is longer than the bytes that were asked
    for: it cannot store it, and fails. So this asks again here, as often as the settings allow for a request.
    """
    attempt = 0
    while True:
        try:
            return read()
        except OSError as error:
            if system.type_name != "s3" or _UNSTORED not in str(error):
                raise
            if attempt + 1 >= _settings_at(S3Place.of(f"s3://{path}")).max_attempts:
                raise
        pause(attempt)
        attempt += 1


def pause(attempt: int) -> None:
    """Sleeps before a request is sent again, twice as long after each attempt (from 0), up to ``_PAUSE_S_MOST``."""
    longest = min(_PAUSE_S_MOST, _PAUSE_S_FIRST * 2.0**attempt)
    time.sleep(longest * random.uniform(0.5, 1.0))  # noqa: S311 - spreads the requests; nothing secret depends on it


def has_directories(system: fs.FileSystem) -> bool:
    """Whether directories have to be made before files can be written in them."""
    return system.type_name in _WITH_DIRECTORIES or _WEBHDFS in system.type_name


@lru_cache(_KEPT_MAX)
def _s3_file_system(settings: S3Settings) -> fs.S3FileSystem:
    scheme, _, endpoint = settings.endpoint.partition("://")
    options: Any = {
        # A file of less than a part's size is one request instead of the three of a multipart upload.
        "allow_delayed_open": True,
        "scheme": scheme or "https",
    }
    return fs.S3FileSystem(
        access_key=settings.access_key_id or None,
        secret_key=settings.secret_access_key or None,
        session_token=settings.session_token or None,
        anonymous=settings.anonymous,
        region=settings.region,
        endpoint_override=endpoint.rstrip("/") or None,
        connect_timeout=settings.connect_timeout,
        request_timeout=settings.request_timeout,
        force_virtual_addressing=settings.force_virtual_addressing,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=settings.max_attempts),
        **options,
    )


@lru_cache(_KEPT_MAX)
def s3_client(settings: S3Settings) -> Any:
    """boto3's client, for any number of threads. Raises FailedPrecondition if boto3 is not installed."""
    try:
        import boto3
        from botocore import UNSIGNED
        from botocore.config import Config
    except ImportError as error:
        raise FailedPrecondition(
            f"directories on S3 need packages that are not installed ({error}): pip install 'lakemark[server]'"
        ) from error
    style = "virtual" if settings.force_virtual_addressing else "path" if settings.endpoint else "auto"
    config = Config(
        connect_timeout=settings.connect_timeout,
        read_timeout=settings.request_timeout,
        retries={"mode": "standard", "total_max_attempts": settings.max_attempts},
        s3={"addressing_style": style},
        signature_version=UNSIGNED if settings.anonymous else None,
        max_pool_connections=_CONNECTIONS_MAX,
        tcp_keepalive=True,
        # Servers other than AWS's know no newer checksums than those that a request must have.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.session.Session().client(
        "s3",
        region_name=settings.region,
        endpoint_url=settings.endpoint or None,
        aws_access_key_id=settings.access_key_id or None,
        aws_secret_access_key=settings.secret_access_key or None,
        aws_session_token=settings.session_token or None,
        config=config,
    )


def _webhdfs() -> str:
    return _current().webhdfs


@lru_cache(_KEPT_MAX)
def _web_file_system(url: str) -> tuple[fs.FileSystem, str]:
    """HDFS over HTTP, as the user whom Hadoop's own variable names."""
    from fsspec.implementations.webhdfs import WebHDFS

    class Timed(WebHDFS):  # type: ignore[misc]
        """Tells of single files when they were written, under the name by which Arrow looks for it."""

        def info(self, path: str) -> dict[str, Any]:
            told: dict[str, Any] = super().info(path)
            return {**told, "mtime": told["modificationTime"] / 1_000}

    parts = urlsplit(url)
    system = Timed(
        host=parts.hostname,
        port=parts.port or (443 if parts.scheme == "https" else 80),
        use_https=parts.scheme == "https",
        user=os.environ.get("HADOOP_USER_NAME") or getpass.getuser(),
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    handler: Any = fs.FSSpecHandler
    return fs.PyFileSystem(handler(system)), "/"


@lru_cache(_KEPT_MAX)
def _other_file_system(root: str) -> tuple[fs.FileSystem, str]:
    return fs.FileSystem.from_uri(root)


@lru_cache(1_024)
def _region_of(bucket: str, settings: S3Settings) -> str:
    try:
        return str(fs.resolve_s3_region(bucket))
    except OSError as error:
        raise translated("its region cannot be found out", f"s3://{bucket}", error, settings) from error
