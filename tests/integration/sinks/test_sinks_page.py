"""docs/sinks.md: its receiver works, and its figures are those of the code."""

from __future__ import annotations

import re
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from lakemark import Client
from lakemark_server.sinks import definitions, registry, webhook
from lakemark_server.sinks.dead_letters import LetterLimits
from tests.webhooks import SECRET, WAIT_S

PAGE = Path(__file__).parents[3] / "docs" / "sinks.md"


def test_the_receiver_of_the_page_verifies_and_sees_each_event_once(client: Client) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102 - our own page
    hook = type("Hook", (names["Hook"],), {"secret": SECRET, "log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), hook)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    try:
        client.sinks.create_webhook("hook", url, SECRET, kinds=["database_created"])
        for name in ("a", "b", "c"):
            client.databases.create(name)
        _wait_for(lambda: len(names["events"]) == 3)
        client.sinks.resume("hook", after=0)  # all of it once more
        client.databases.create("d")
        _wait_for(lambda: len(names["events"]) == 4)
        assert [event["data"]["database"] for event in names["events"]] == ["a", "b", "c", "d"]
        forged = {"webhook-id": "x", "webhook-timestamp": str(int(time.time())), "webhook-signature": "v1,AAAA"}
        for headers in (forged, {**forged, "webhook-timestamp": "1"}):
            with pytest.raises(HTTPError, match="401"):
                urlopen(Request(url, b"{}", headers), timeout=WAIT_S)
    finally:
        server.shutdown()
        server.server_close()


def test_the_page_has_the_figures_of_the_code() -> None:
    text = " ".join(PAGE.read_text().split())
    for name in (*definitions.KAFKA_PROPERTIES, *definitions.KAFKA_SECRETS):
        assert f"`{name}`" in text
    assert f"{registry.SINKS_MAX} sinks in a catalog and {registry.SINKS_OF_STORE_MAX} in a store" in text
    assert f"{LetterLimits().letters:,} dead letters (`sink_letters_max`) and {LetterLimits().bytes >> 20} MiB" in text
    assert f"array of up to {webhook.BATCH_EVENTS_MAX}" in text
    assert f"at most {webhook.BODY_BYTES_MAX >> 20} MiB" in text
    assert f"`attempts_max` attempts ({definitions.ATTEMPTS_DEFAULT};" in text
    assert f"`timeout_ms` in all ({definitions.TIMEOUT_MS_DEFAULT:,})" in text


def _wait_for(condition: Any) -> None:
    until_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)
