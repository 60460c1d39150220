"""Kinds of tables over gRPC: what creation and later changes of properties and columns allow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakemark import Client
from lakemark.errors import InvalidArgument, InvalidSchema
from tests.integration.grpc_server import connected, running_service

KEYED = {"lakemark.primary-key": "id,day", "lakemark.bucket.count": "4", "lakemark.merge.ordering-column": "at"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with running_service(tmp_path) as service, connected(service) as client:
        yield client


def test_properties_of_a_kind_are_checked_against_the_columns(client: Client) -> None:
    client.databases.create("kinds")
    columns = "id int, at timestamp, v string, day date"

    with pytest.raises(InvalidArgument, match="lacks the partition column day"):
        client.tables.create(
            "kinds.t", columns, partitioned_by=["day"], properties={**KEYED, "lakemark.primary-key": "id"}
        )
    created = client.tables.create("kinds.t", columns, partitioned_by=["day"], properties=KEYED)
    assert created.properties["lakemark.bucket.count"] == "4"

    with pytest.raises(InvalidArgument, match="cannot be changed"):
        client.tables.set_properties("kinds.t", {"lakemark.bucket.count": "8"})
    with pytest.raises(InvalidArgument, match="cannot be changed"):
        client.tables.set_properties("kinds.t", remove=["lakemark.primary-key"])
    client.tables.set_properties("kinds.t", {"lakemark.write.mode": "merge-on-read"})

    for change, told in (
        ("DROP COLUMN at", "ordering-column"),
        ("RENAME COLUMN id TO key", "primary-key"),
        ("ALTER COLUMN id TYPE BIGINT", "primary-key"),
    ):
        with pytest.raises(InvalidSchema, match=told):
            client.tables.alter("kinds.t", change)
    client.tables.alter("kinds.t", "RENAME COLUMN v TO value; ADD COLUMN w INT")
