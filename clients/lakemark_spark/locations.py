"""Locations as Spark names them: in the scheme of a file system that its Hadoop has, and what is missing for that.

The service answers ``s3://``, which Hadoop's own file systems do not know; theirs is ``s3a://``. All that goes to Spark
and comes from it passes here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakemark_core.errors import StorageRefused
from lakemark_core.storage import canonical_uri, engine_schemes, in_scheme
from lakemark_spark.sessions import is_connect

_FILE_SCHEME: Final = re.compile("^file:/+")
_ENDPOINT: Final = "LAKEMARK_S3_ENDPOINT"
_SAID_MAX: Final = 300
_CREDENTIALS: Final = (
    "set spark.hadoop.fs.s3a.access.key and spark.hadoop.fs.s3a.secret.key, or the variables of AWS where Spark's "
    "driver and executors run, or spark.hadoop.fs.s3a.aws.credentials.provider"
)
_NO_JARS: Final = "no_file_system"
_NOT_WRITABLE: Final = "not_writable"
_FULL: Final = "no_space"
_MISSING: Final = (
    # What Hadoop says, the reason by name, and what is missing.
    (re.compile(r"NoClassDefFoundError: (software/amazon|com/amazonaws)|S3AFileSystem not found"), _NO_JARS, ""),
    (re.compile("No FileSystem for scheme"), _NO_JARS, ""),
    (re.compile("NoAuthWithAWSException|NoAwsCredentials"), "no_credentials", f"it has no credentials: {_CREDENTIALS}"),
    (
        re.compile("InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken"),
        "bad_credentials",
        f"its credentials are unknown there, wrong or expired: {_CREDENTIALS}",
    ),
    (
        re.compile("NoSuchBucket|UnknownStoreException"),
        "no_such_bucket",
        "there is no such bucket where it looks: make it first, or set spark.hadoop.fs.s3a.endpoint",
    ),
    (re.compile("AccessDenied|Status Code: 403"), "access_denied", "a permission is missing, or credentials are"),
    (
        re.compile(r"Mkdirs failed to create|Parent path is not a directory|ParentNotDirectory|Permission denied"),
        _NOT_WRITABLE,
        "it cannot be written there; look at its owner and permissions, and whether a file is in its place",
    ),
    (
        re.compile(r"No space left on device|Disk quota exceeded|File too large"),
        _FULL,
        "no room is left there, or where Spark keeps its temporary files (spark.local.dir)",
    ),
)


def for_spark(location: str) -> str:
    """The location in the scheme that Spark reads: ``s3a`` for ``s3``, unless ``LAKEMARK_ENGINE_SCHEMES`` says else."""
    return in_scheme(canonical_uri(location), engine_schemes())


def same_for_all(location: str) -> str:
    """A text that is the same for all names of a file: with one slash or three, ``s3:`` or ``s3a:``."""
    return canonical_uri(_FILE_SCHEME.sub("file:/", location))


def same_as_listed(uri: str) -> str:
    """The same for a file as Spark lists it, which escapes what URIs escape."""
    return same_for_all(unquote(uri))


def spellings(uri: str) -> list[str]:
    """How ``_metadata.file_path`` may spell a file that Spark lists as ``uri``."""
    return list(dict.fromkeys(_FILE_SCHEME.sub(form, uri) for form in ("file:/", "file:///")))


@contextmanager
def reached_by(spark: SparkSession, location: str) -> Iterator[str]:
    """The location for Spark, which reads or writes there within the block.

    Raises StorageRefused if Spark cannot reach it, with the settings that are missing; other errors pass.
    """
    place = for_spark(location)
    try:
        yield place
    except (Py4JJavaError, PySparkException) as error:
        raise _told(spark, place, error) or error from error


def _told(spark: SparkSession, place: str, error: Exception) -> StorageRefused | None:
    text = str(error)
    parts = urlsplit(place)
    for sign, reason, missing in _MISSING:
        # A job may fail to read other places, too; what names none has no file system at all.
        # Where an instant's directory cannot be made, the one above it is named.
        here = parts.path.rpartition("/")[0] if reason in (_NOT_WRITABLE, _FULL) else f"//{parts.netloc}"
        if not sign.search(text) or (reason != _NO_JARS and here not in text):
            continue
        line = next(one.strip(": ") for one in text.splitlines() if sign.search(one))
        known = missing or f"it has no file system for {parts.scheme}: {_jars(spark, parts.scheme)}"
        return StorageRefused(
            f"Spark does not reach {place}: {known}{_settings_hint(spark, parts.scheme)} [{line[:_SAID_MAX]}]",
            location=place,
            bucket=parts.netloc,
            reason=reason,
        )
    return None


def _jars(spark: SparkSession, scheme: str) -> str:
    if scheme != "s3a":
        return "add the jars of a Hadoop file system for it"
    if is_connect(spark):
        return "start its server with --packages org.apache.hadoop:hadoop-aws, in the version of its Hadoop"
    jvm: Any = spark._jvm
    version = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    return f"start Spark with --packages org.apache.hadoop:hadoop-aws:{version}, the version of its Hadoop"


def _settings_hint(spark: SparkSession, scheme: str) -> str:
    """Whoever has told Lakemark an endpoint may think that Spark knows it, too."""
    wanted = os.environ.get(_ENDPOINT, "")
    if scheme != "s3a" or not wanted or urlsplit(wanted).netloc in _endpoint(spark):
        return ""
    return (
        f"; {_ENDPOINT} is {wanted}, which is for Lakemark alone: Spark needs spark.hadoop.fs.s3a.endpoint={wanted}, "
        "spark.hadoop.fs.s3a.endpoint.region and spark.hadoop.fs.s3a.path.style.access=true"
    )


def _endpoint(spark: SparkSession) -> str:
    """The S3 endpoint of Spark; "": it has none, or it does not tell."""
    if is_connect(spark):
        return ""
    context: Any = spark._jsc
    # Spark itself writes AWS's own where none is set.
    return str(context.hadoopConfiguration().get("fs.s3a.endpoint") or "")
