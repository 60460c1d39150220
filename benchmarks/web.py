"""How fast the web page is: ``scripts/bench web [--json] [--tables N] [--files N] [--versions N]``.

A lake of 10,000 tables without files, and one table of a million files in 1,000 partitions, made by 1,000 commits.
``overview_10k_ms`` and ``table_ms`` are medians of what the service itself says (``Server-Timing``) that it took to
make the overview and the table's page; ``…_first_ms`` are those of the first request. The others are of further pages:
the overview sorted by health and searched by name, the table's partitions, the files of one of them, its timeline, and
what the optimizer says of it and of its groups.
``survey_s``: until all tables have been looked at after the overview was opened. ``page_kb``: the overview with its
style and script, as they are sent (compressed). ``axe_serious``: what axe finds in these pages that is serious or
critical; -1 without a browser (``scripts/setup --browser``).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from benchmarks import folds, machine
from benchmarks.browser import BrowserMissing, running_browser, serious_findings
from benchmarks.dataset import APPENDS, Dataset
from benchmarks.lake import EMPTY, connected
from benchmarks.service import Service, running_service

RUNS: Final = 40
BIG: Final = "big"
TABLE: Final = f"/tables/hive/default/{BIG}"
PAGES: Final = {
    "overview_10k": "/",
    "overview_health": "/?sort=health",
    "overview_search": "/?q=07",
    "table": TABLE,
    "files": f"{TABLE}/files",
    "partition": f"{TABLE}/files?partition=p%3D7",
    "timeline": f"{TABLE}/timeline",
    "optimizing": f"{TABLE}/optimizing",
    "optimizer": "/optimizer",
}
SETTINGS: Final = {"LAKEMARK_WEB_PORT": "0"}
_SURVEY_S_MAX: Final = 900.0
_LINKED: Final = re.compile(r'(?:href|src)="(/static/[^"]+)"')


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench web", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the last line of standard output is one JSON object")
    parser.add_argument("--tables", type=int, default=10_000, help="how many tables the lake has beside the large one")
    parser.add_argument("--files", type=int, default=1_000_000, help="how many files the large table has")
    parser.add_argument("--partitions", type=int, default=1_000, help="in how many partitions")
    parser.add_argument("--versions", type=int, default=1_000, help="in how many commits, a multiple of 100")
    arguments = parser.parse_args()
    described = machine.description()
    with tempfile.TemporaryDirectory(prefix="lakemark-bench-") as directory:
        place = Path(directory)
        _fill(place, arguments.tables, Dataset(arguments.files, arguments.partitions), arguments.versions)
        folds.fold_if_due(place, BIG)  # as the service does in the background
        with running_service(place, hms=False, settings=SETTINGS) as service:
            result = _measure(service)
    for name, value in result.items():
        print(f"{name}: {value}", flush=True)
    described["load_1min_after"] = round(os.getloadavg()[0], 2)
    if arguments.json:
        sizes = {"tables": arguments.tables, "files": arguments.files, "table_versions": arguments.versions}
        versions = machine.versions("lakemark", "starlette", "uvicorn", "jinja2")
        print(json.dumps({"benchmark": "web", "machine": described, "versions": versions, **sizes, **result}))


def _fill(place: Path, tables: int, dataset: Dataset, versions: int) -> None:
    each = dataset.files // versions
    with running_service(place, hms=False, settings=SETTINGS) as service, connected(service) as lake:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lake.create, (f"{EMPTY}_{number:05}" for number in range(tables))))
        lake.create(BIG)
        append = lake.appender(BIG)
        for number in range(APPENDS):
            entries = dataset.append(number)
            for first in range(0, entries.num_rows, each):
                append(entries.slice(first, each))


def _measure(service: Service) -> dict[str, Any]:
    result: dict[str, Any] = {}
    url = service.web_url.rstrip("/")
    began = time.perf_counter()
    result["overview_first_ms"] = _get(url + PAGES["overview_10k"])[1]
    result["table_first_ms"] = _get(url + PAGES["table"])[1]
    while "have been looked at" in _get(url + PAGES["overview_10k"])[0].decode():
        assert time.perf_counter() - began < _SURVEY_S_MAX, "the survey does not end"
        time.sleep(0.5)
    result["survey_s"] = round(time.perf_counter() - began, 1)
    for name, path in PAGES.items():
        result[f"{name}_ms"] = round(statistics.median(_get(url + path)[1] for _ in range(RUNS)), 1)
    result["page_kb"] = round(_first_view_bytes(url) / 1_000, 1)
    result["axe_serious"] = _axe(url)
    result["rss_mb"] = service.rss_mb()
    return result


def _get(address: str, encoding: str = "identity") -> tuple[bytes, float]:
    """The answer, and the milliseconds that the service says it took (0: it does not)."""
    request = urllib.request.Request(address, headers={"accept-encoding": encoding})  # noqa: S310 - our own service
    with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310
        timing = response.headers.get("server-timing", "")
        return response.read(), float(timing.partition("dur=")[2] or 0)


def _first_view_bytes(url: str) -> int:
    linked = _LINKED.findall(_get(url + "/")[0].decode())
    return sum(len(_get(url + path, "gzip")[0]) for path in ("/", *linked))


def _axe(url: str) -> int:
    try:
        with running_browser() as browser:
            page = browser.new_context(bypass_csp=True).new_page()
            serious = 0
            for path in PAGES.values():
                page.goto(url + path)
                serious += len(serious_findings(page))
            return serious
    except BrowserMissing:
        return -1


if __name__ == "__main__":
    main()
