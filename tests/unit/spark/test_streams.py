"""Writers of streams on their way to where Spark runs, which is how Spark Connect calls them."""

from __future__ import annotations

import pickle

import pytest

from lakemark import connect
from lakemark.errors import UnsupportedOperation
from lakemark_spark import StreamWriter, stream_writer


def test_a_writer_with_a_name_and_an_address_can_be_sent() -> None:
    writer = stream_writer("db.t", "upsert", query="orders", keys=["id"], server="lake:9090", metadata={"by": "me"})
    sent = pickle.loads(pickle.dumps(writer))  # noqa: S301 - its own bytes
    assert isinstance(sent, StreamWriter)
    assert sent == writer


def test_a_writer_that_would_be_of_no_use_there_is_refused() -> None:
    with connect("127.0.0.1:1") as client, pytest.raises(UnsupportedOperation, match="give the service's address"):
        pickle.dumps(stream_writer("db.t", query="orders", server=client))
    with pytest.raises(UnsupportedOperation, match="name it"):
        pickle.dumps(stream_writer("db.t", server="lake:9090"))
