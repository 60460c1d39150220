"""A table of so many partitions that no list has all of them: pages work, in bounded memory, and say what they leave
out."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lakemark_proto.v1 import types_pb2 as p
from lakemark_server.timeline.publication.commits import CommitDraft
from tests.integration.grpc_server import running_service
from tests.integration.web.conftest import SETTINGS, Site
from tests.integration.web.test_pages import surveyed, text_of
from tests.web_lake import WebLake

PARTITIONS = 140_000
AT_ONCE = 35_000
TABLE = "/tables/hive/sales/wide"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_service(tmp_path_factory.mktemp("wide"), **SETTINGS) as service:
        lake = WebLake(service)
        lake.database("sales")
        table = lake.table("wide")
        for first in range(0, PARTITIONS, AT_ONCE):
            instant = lake.open(table)
            names = [f"{number:06}" for number in range(first, first + AT_ONCE)]
            given = [
                p.DataFile(
                    path=f"{instant}/{name}/a.parquet",
                    size_bytes=200 << 20,
                    row_count=10,
                    file_group=f"{instant}-{name}",
                    partition=[p.Value(text=name)],
                )
                for name in names
            ]
            service.timeline.commit(table, CommitDraft(instant, p.DataFiles(list=p.DataFileList(files=given))))
        yield Site(service)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("", "Partitions 140,000"),
        ("/files", "140,000 files in 140,000 partitions"),
        ("/files?sort=size&offset=70000", "140,000 files in 140,000 partitions"),
        ("/files?partition=day%3D139999", "1 file, 210 MB, 10 rows"),
        ("/timeline", "35,000"),
        ("/optimizing", "day=0"),
        ("/conflicts", "conflict policy"),
    ],
)
def test_pages_of_a_wide_table_work(site: Site, page: str, said: str) -> None:
    answer = site.get(f"{TABLE}{page}")
    assert answer.status == 200, answer.text
    assert said in text_of(answer.text)
    assert len(answer.text) < 200_000


def test_the_list_says_what_it_leaves_out(site: Site) -> None:
    text = text_of(site.get(f"{TABLE}/files").text)
    told = re.search(r"the ([\d,]+) with most to gain are in it, and ([\d,]+) others are not", text)
    assert told
    listed, left_out = (int(one.replace(",", "")) for one in told.groups())
    assert listed + left_out == PARTITIONS
    assert listed > 50_000
    last = site.get(f"{TABLE}/files?offset={listed - 50}").text
    assert last.count("/files?partition=") == 50
    assert 'rel="next"' not in last


def test_the_overview_knows_it(site: Site) -> None:
    assert "sales.wide 100 good 29.4 TB 140,000" in surveyed(site)
