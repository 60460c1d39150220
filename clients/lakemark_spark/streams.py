"""Writing streams to lake tables, exactly once: a function for ``foreachBatch``.

Spark may run a batch again, with the same rows and the same number (its epoch): when a job fails, and when a driver
is started again after it was killed at any point. The request id of a batch is made of the query, what is done, and the
epoch, so that the batch is committed once, whoever asks for it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from pyspark.sql import DataFrame

from lakemark import Client
from lakemark_core.errors import CommitConflict, InvalidArgument, UnsupportedOperation
from lakemark_spark.connection import SERVER_DEFAULT, use_client
from lakemark_spark.deletes import delete_keys
from lakemark_spark.inserts import insert
from lakemark_spark.upserts import upsert
from lakemark_spark.writer import append

StreamMode: TypeAlias = Literal["append", "upsert", "insert", "delete_keys"]

QUERY: Final = "lakemark.stream.query"
"""In the metadata of a commit: the query whose batch it is, with what is done."""
EPOCH: Final = "lakemark.stream.epoch"

VERSIONS_LOOKED_AT_MAX: Final = 10_000
ATTEMPTS_MAX: Final = 20
WAIT_MAX_S: Final = 2.0

_SPARKS_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass
class StreamWriter:
    """Writes batch after batch of one query into one table. Made by ``stream_writer``; for ``foreachBatch``."""

    table: str
    mode: StreamMode
    query: str | None
    keys: str | Sequence[str] | None
    server: str | Client
    metadata: Mapping[str, str]
    branch: str
    _known: set[str] = field(default_factory=set)

    def __call__(self, df: DataFrame, epoch: int) -> None:
        """Commits a batch, unless that was done before. Raises what the function of the mode raises.

        CommitConflict comes after ATTEMPTS_MAX attempts only: a batch that loses against another writer is tried again.
        """
        query = f"{self.query or _query_of(df)}/{self.mode}"
        with use_client(self.server) as client:
            if query not in self._known:
                # Only a driver that was started again can be asked to repeat what is older than its own batches.
                if epoch and _last_epoch(client, self.table, query, self.branch) >= epoch:
                    return
                self._known.add(query)
            for attempt in range(ATTEMPTS_MAX):
                try:
                    self._write(client, df, query, epoch)
                except CommitConflict:
                    if attempt + 1 == ATTEMPTS_MAX:
                        raise
                    # By chance, so that two queries that met do not meet again.
                    time.sleep(random.uniform(0, min(WAIT_MAX_S, 0.05 * 2**attempt)))  # noqa: S311
                else:
                    return

    def __getstate__(self) -> dict[str, Any]:
        """What goes to where Spark runs, as Spark Connect sends the functions of ``foreachBatch``.

        Raises UnsupportedOperation if it would be of no use there.
        """
        if isinstance(self.server, Client):
            raise UnsupportedOperation(
                "Spark Connect runs this function where Spark runs, and an open client cannot go there: give the "
                "service's address as it is reached from there, stream_writer(…, server='host:port')"
            )
        if self.query is None:
            raise UnsupportedOperation(
                "Spark Connect does not tell which query a batch belongs to: name it, stream_writer(…, query='orders')"
            )
        return vars(self)

    def _write(self, client: Client, df: DataFrame, query: str, epoch: int) -> None:
        metadata = {**self.metadata, QUERY: query, EPOCH: str(epoch)}
        request_id = f"stream/{query}/{epoch}"
        match self.mode:
            case "append":
                append(df, self.table, server=client, metadata=metadata, request_id=request_id, branch=self.branch)
            case "delete_keys":
                delete_keys(df, self.table, server=client, metadata=metadata, request_id=request_id, branch=self.branch)
            case "insert" | "upsert":
                by_key = insert if self.mode == "insert" else upsert
                by_key(
                    df,
                    self.table,
                    keys=self.keys,
                    server=client,
                    metadata=metadata,
                    request_id=request_id,
                    branch=self.branch,
                )


def stream_writer(
    table: str,
    mode: StreamMode = "append",
    *,
    query: str | None = None,
    keys: str | Sequence[str] | None = None,
    server: str | Client = SERVER_DEFAULT,
    metadata: Mapping[str, str] | None = None,
    branch: str = "",
) -> StreamWriter:
    """A function for ``foreachBatch`` that writes each batch to ``database.table`` exactly once.

    ``df.writeStream.foreachBatch(stream_writer("db.t", "upsert")).option("checkpointLocation", …).start()``

    ``mode``: the function of this package that gets the batches. ``keys``: for "insert" and "upsert". ``query``: what
    tells this query's batches from those of others, and stays the same when it is started again; None: the id that
    Spark keeps in the checkpoint (Spark Connect does not tell it: give a name there). A query that writes to one table
    twice in one mode needs two names, and so does one that is started with a new checkpoint.

    A batch that loses against another writer is written again, up to ATTEMPTS_MAX times. Each commit has query and
    epoch in its metadata.
    """
    if mode not in get_args(StreamMode):
        raise InvalidArgument(f"mode={mode!r} is not known; use {', '.join(map(repr, get_args(StreamMode)))}")
    if keys is not None and mode not in ("insert", "upsert"):
        raise InvalidArgument(f"keys={keys!r} are for the modes 'insert' and 'upsert', and mode is {mode!r}")
    return StreamWriter(table, mode, query, keys, server, dict(metadata or {}), branch)


def _query_of(df: DataFrame) -> str:
    """The id of the query whose batch it is, as its checkpoint has it."""
    try:
        query = df.sparkSession.sparkContext.getLocalProperty(_SPARKS_QUERY_ID)
    except Exception as error:  # Spark Connect has no context, and says so by an error of its own
        raise UnsupportedOperation(
            "this Spark does not tell which query a batch belongs to: name it, stream_writer(…, query='orders')"
        ) from error
    if not query:
        raise InvalidArgument(
            "this DataFrame is not a batch of a stream: use the function in foreachBatch, or name the query, "
            "stream_writer(…, query='orders')"
        )
    return str(query)


def _last_epoch(client: Client, table: str, query: str, branch: str) -> int:
    """The last epoch that the query has committed; -1: none is among the newest versions.

    The service keeps request ids for a day: a query that was down for longer finds here what it has done.
    """
    for version in client.timeline.versions(table, branch=branch, limit=VERSIONS_LOOKED_AT_MAX, newest_first=True):
        if version.metadata.get(QUERY) == query:
            return int(version.metadata[EPOCH])
    return -1
