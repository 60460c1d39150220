"""A client of the Metastore protocol, with the bindings of Hive 2.3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lakemark_server.process import Service

Client: TypeAlias = ThriftHiveMetastore.Client


@contextmanager
def thrift_client(service: Service) -> Iterator[Client]:
    """One connection."""
    assert service.hms is not None
    transport = TBufferedTransport(TSocket("127.0.0.1", service.hms.port))
    transport.open()
    try:
        yield Client(TBinaryProtocolAccelerated(transport, fallback=False))
    finally:
        transport.close()
