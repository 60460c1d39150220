"""Two processes of one store: one of them runs a sink, and the other takes over."""

from __future__ import annotations

import dataclasses

from lakemark import Client
from lakemark_server.context.clock import now_ms
from lakemark_server.process import Service
from lakemark_server.sinks.runner import SinkRunner
from tests.webhooks import SECRET, WebhookReceiver, hanging


def test_one_of_two_runs_a_sink_and_the_other_takes_over(
    service: Service, client: Client, receiver: WebhookReceiver
) -> None:
    settings = dataclasses.replace(service.settings.sinks, lease_ms=300)
    runners = [SinkRunner(service.store, now_ms, settings, service.events.feed) for _ in range(2)]
    service._sink_runner.stop()
    for runner in runners:
        runner.start()
    try:
        client.sinks.create_webhook("hook", receiver.url, SECRET, timeout_ms=150, kinds=["database_created"])
        for number in range(10):
            client.databases.create(f"a{number}")
        receiver.wait_for(lambda: len(receiver.delivered) >= 10)
        assert len(receiver.delivered) == 10, "both had them"
        # Whoever has it hangs in a delivery when it is stopped.
        receiver.script.append(hanging)
        client.databases.create("b")
        receiver.wait_for(lambda: len(receiver.requests) >= 11)
        runners[0].stop()
        client.databases.create("c")
        receiver.wait_for(lambda: len(receiver.delivered) >= 12)
    finally:
        for runner in runners:
            runner.stop()
    names = [event["data"]["database"] for event in receiver.delivered]
    assert list(dict.fromkeys(names)) == [*(f"a{number}" for number in range(10)), "b", "c"]
