"""The life of a table on HDFS, by the service and the Python client.

``python -m tests.e2e.storage.hdfs_life URI DIRECTORY`` plays it by libhdfs, which the environment has to name, and
prints the kind of pyarrow's file system.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from lakemark import Client
from lakemark_core import storage
from lakemark_server.process import Service
from lakemark_server.verify import check_files, verify
from tests.integration.grpc_server import connected, running_service
from tests.integration.storage.test_lake_on_s3 import until


def files(table: str, client: Client) -> list[str]:
    """The paths of a table's files, as the store lists them."""
    return sorted(path for path, _ in storage.list_files(client.tables.get(table).location))


def live(service: Service, client: Client, uri: str) -> None:
    """Written, read, overwritten, cleaned, rolled back, verified and dropped; the warehouse is ``uri`` + ``/wh``."""
    name = "db.python"
    places = ["a b", "c/d", "e%20f", "ü=+", "g#h?i"]
    client.tables.create(name, {"id": "bigint", "place": "string"}, partitioned_by=["place"])
    with client.begin(name, "append") as writer:
        writer.write(pa.table({"id": range(len(places)), "place": places}))
        writer.commit()
    location = client.tables.get(name).location
    assert location.startswith(f"{uri}/wh/db.db/python-")
    assert sorted(client.read(name).column("place").to_pylist()) == sorted(places)
    assert client.read(name, "place = 'e%20f'").column("id").to_pylist() == [2]
    with client.begin(name, "overwrite_table") as writer:
        writer.write(pa.table({"id": [9], "place": ["z"]}))
        writer.commit()
    assert client.read(name, version=1).num_rows == len(places)
    client.timeline.clean(name, retain_versions=1)
    (left,) = files(name, client)
    lost = client.begin(name, "append")
    lost.write(pa.table({"id": [10], "place": ["z"]}))
    assert len(files(name, client)) == 2
    lost.rollback()
    until(lambda: files(name, client) == [left])
    checked = check_files(service.store, orphans=True)
    assert (checked.problems, checked.orphans, verify(service.store)) == ([], [], [])
    client.tables.drop(name, now=True)
    assert not storage.is_directory(location)


def main(uri: str, directory: str) -> None:
    with running_service(Path(directory), warehouse=f"{uri}/wh") as service, connected(service) as client:
        client.databases.create("db")
        live(service, client, uri)
        print(type(storage.open_location(f"{uri}/wh")[0]).__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
