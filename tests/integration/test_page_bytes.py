"""Pages of files fit into a message, however long the files' paths and bounds are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from lakemark import Client, ColumnStatistics, DataFile
from tests.integration.grpc_server import connected, running_service

MESSAGE_BYTES_MAX: Final = 1 << 20
FILES: Final = 11_000


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    root = tmp_path_factory.mktemp("small")
    with running_service(root, grpc_message_bytes_max=MESSAGE_BYTES_MAX) as service, connected(service) as client:
        client.tables.create("default.t", "id bigint, name string")
        with client.begin("default.t") as writer:
            files = [described(writer.instant, number) for number in range(FILES)]
            for first in range(0, FILES, 1_000):
                writer.stage(files[first : first + 1_000])
            writer.commit()
        yield client


def described(instant: int, number: int) -> DataFile:
    """A file with an incompressible path and bounds of a text column."""
    spread = f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}{number * 0xC2B2AE3D27D4EB4F % 2**64:016x}"
    bounds = ColumnStatistics(2, f"a{spread}" * 2, f"b{spread}" * 2, 0)
    return DataFile(f"{instant}/{spread}/{spread[::-1]}.parquet", number + 1, 1, statistics=(bounds,))


@pytest.mark.parametrize("columns", [(), ("name",)])
def test_a_plan_comes_in_pages_that_fit(client: Client, columns: tuple[str, ...]) -> None:
    plan = client.plan("default.t", statistics=columns)
    assert sorted(plan.table().column("size_bytes").to_pylist()) == list(range(1, FILES + 1))
    assert len(plan._pages) > 1
    assert all(page.ByteSize() <= MESSAGE_BYTES_MAX for page in plan._pages)


def test_changes_and_file_slices_come_in_pages_that_fit(client: Client) -> None:
    assert len(client.changes("default.t", 0).added) == FILES
    assert len(client.file_slices("default.t")) == FILES
