"""A Metastore on a free port over a store of its own, and Thrift clients for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from lakemark_hms.bridge import HmsBridge
from lakemark_server.catalog.service import Catalog
from lakemark_server.kv import Store, buffer, open_store
from tests.integration.hms_raw import Raw
from tests.stores import store_url

Client = ThriftHiveMetastore.Client
Connect = Callable[[], Client]

SMALL_TRANSACTION_BYTES_MAX = 1_000_000


@pytest.fixture(autouse=True)
def _small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction of servers in this process may be larger than FoundationDB recommends."""
    monkeypatch.setattr(buffer, "TRANSACTION_BYTES_MAX", SMALL_TRANSACTION_BYTES_MAX)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(store_url(tmp_path))
    yield opened
    opened.close()


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """The directory that databases are below."""
    return tmp_path / "warehouse"


@pytest.fixture
def catalog(store: Store, warehouse: Path) -> Catalog:
    made = Catalog(store, str(warehouse))
    made.ensure_default_database()
    return made


@pytest.fixture
def hms(catalog: Catalog) -> Iterator[HmsBridge]:
    with HmsBridge(catalog) as bridge:
        yield bridge


@pytest.fixture
def connect(hms: HmsBridge) -> Iterator[Connect]:
    """Gives a new client, one connection each, closed at the end of the test."""
    with ExitStack() as stack:

        def opened() -> Client:
            transport = TBufferedTransport(TSocket("127.0.0.1", hms.port))
            transport.open()
            stack.callback(transport.close)
            return Client(TBinaryProtocolAccelerated(transport, fallback=False))

        yield opened


@pytest.fixture
def client(connect: Connect) -> Client:
    return connect()


@pytest.fixture
def raw(hms: HmsBridge) -> Iterator[Raw]:
    made = Raw(hms.port)
    yield made
    made.close()
