"""Alarms by mail: from a partition that the optimizer has given up to a message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark import Client
from lakemark.cli.app import run
from lakemark.errors import FailedPrecondition
from lakemark_server.process import Service
from tests.integration.grpc_server import connected, running_service
from tests.integration.sinks.conftest import SINK_SETTINGS
from tests.integration.test_optimization import Failing, until, working
from tests.mail_server import MailServer


@pytest.fixture
def mail() -> Iterator[MailServer]:
    with MailServer() as server:
        yield server


@pytest.fixture
def mailing(tmp_path: Path, mail: MailServer) -> Iterator[Service]:
    given = {"mail_host": "127.0.0.1", "mail_port": mail.port, "mail_tls": "none", "mail_from": "lake@example.com"}
    planning = {"optimizer": True, "optimizer_interval_s": 0.05}
    with running_service(tmp_path, **SINK_SETTINGS, **given, **planning) as service:
        yield service


def test_a_table_that_the_optimizer_has_stopped_on_is_told_by_mail(
    mailing: Service, mail: MailServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with connected(mailing) as client:
        command = ["-s", mailing.grpc_address, "--json", "sinks", "create", "mail", "alarms", "ops@example.com"]
        assert run(command) == 0
        made = json.loads(capsys.readouterr().out)
        assert (made["kind"], made["receiver"]) == ("mail", {"to": ["ops@example.com"]})
        assert made["kinds"] == ["optimization_stopped"]
        properties = {"lakemark.optimize.minor.fragments": "2", "lakemark.optimize.attempts-max": "1"}
        client.tables.create("default.t", "id bigint", properties=properties)
        with working(client, {"arrow": Failing()}):
            for _ in range(2):
                with client.begin("default.t") as writer:
                    writer.write(pa.table({"id": [1]}))
                    writer.commit()
            (message,) = mail.wait(1)
        assert message["Subject"] == "[lakemark] optimization stopped: default.t"
        assert "lakemark optimize resume default.t" in message.get_content()
        assert until(lambda: client.sinks.get("alarms").delivered) == 1


def test_a_service_without_a_mail_server_makes_no_such_sink(client: Client) -> None:
    with pytest.raises(FailedPrecondition, match="LAKEMARK_MAIL_HOST"):
        client.sinks.create_mail("alarms", ["ops@example.com"])
