"""What Spark needs to reach an S3 server by Hadoop's S3A: jars and settings; and what Lakemark in it needs."""

from __future__ import annotations

import os
from typing import Final

from benchmarks.peers.jars import jars

from tests.s3_server import ACCESS_KEY, REGION, SECRET_KEY

COMMITTERS: Final = ("plain", "magic", "directory")
"""Hadoop's own, which renames, and two of S3A's: ``magic``, and ``directory``, which is a staging one."""


def s3a_settings(version: str, endpoint: str, *, committers: bool = False) -> dict[str, str]:
    """Settings of a Spark of this version. ``committers``: with the classes that S3A's committers need in Spark."""
    sets = [f"s3a, Spark {version}", *([f"committers, Spark {version}"] if committers else [])]
    return {
        # On the class path, because spark.jars would be copied for each session, and the SDK is large.
        "spark.driver.extraClassPath": os.pathsep.join(str(jar) for name in sets for jar in jars(name)),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": REGION,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": ACCESS_KEY,
        "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
        # The default of later Hadoops; servers that really have directories refuse to delete them.
        "spark.hadoop.fs.s3a.directory.marker.retention": "keep",
        # A server for tests answers slowly at worst, and never goes away.
        "spark.hadoop.fs.s3a.retry.interval": "20ms",
        "spark.hadoop.fs.s3a.retry.throttle.interval": "20ms",
    }


def lakemark_variables(endpoint: str) -> dict[str, str]:
    """The environment of a client of Lakemark that reaches the same server."""
    return {
        "LAKEMARK_S3_ENDPOINT": endpoint,
        "LAKEMARK_S3_REGION": REGION,
        "LAKEMARK_S3_ACCESS_KEY_ID": ACCESS_KEY,
        "LAKEMARK_S3_SECRET_ACCESS_KEY": SECRET_KEY,
    }


def committer_settings(name: str) -> dict[str, str]:
    """Settings of a session by which Spark writes parquet with one of ``COMMITTERS``.

    Spark 4 takes the magic one by itself if it has the classes of ``committers``, so the plain one is named, too.
    """
    if name == "plain":
        return {
            "spark.sql.sources.commitProtocolClass": (
                "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
            ),
            "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
        }
    return {
        "fs.s3a.committer.name": name,
        "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
        "spark.sql.parquet.output.committer.class": "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
    }
