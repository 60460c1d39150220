"""Other sites and rebound names get nothing; actions need a switch, a token and our own page, and are logged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakemark_proto.v1 import catalog_pb2, optimization_pb2
from tests.integration.grpc_server import running_service
from tests.integration.web.conftest import SETTINGS, Answer, Site
from tests.web_lake import MEGA, WebLake

TABLE = "/tables/hive/sales/acted"
ACTION = f"{TABLE}/action"
GROUPS = "/optimizer/action"


@pytest.fixture
def acted(lake: WebLake) -> str:
    """The name of a table of the test's own, with three versions; the tests change it one after the other."""
    try:
        table = lake.service.catalog.get_lake_table("hive", "sales", "acted")
    except Exception:
        table = lake.table("acted")
        for _ in range(3):
            lake.put(table, [MEGA])
    return table.name


class Form:
    """The form that asks once more, as a browser would send it."""

    def __init__(self, site: Site, query: str, action: str = ACTION) -> None:
        page = site.get(f"{action}?{query}")
        assert page.status == 200, page.text
        assert page.headers["content-encoding"] == "identity"
        self.site, self._action = site, action
        self.fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text))
        self.cookie = page.headers["set-cookie"].partition(";")[0]
        assert "SameSite=strict" in page.headers["set-cookie"]
        assert "HttpOnly" in page.headers["set-cookie"]

    def send(self, **headers: str) -> Answer:
        given = {
            "origin": f"http://{self.site.host}",
            "cookie": self.cookie,
            "sec_fetch_site": "same-origin",
            **headers,
        }
        return self.site.post(self._action, self.fields, **{name: value for name, value in given.items() if value})


def versions(lake: WebLake) -> int:
    table = lake.service.catalog.get_lake_table("hive", "sales", "acted")
    return lake.service.timeline.versions(table.table_id, "", newest_first=True)[0][0].version


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil", "", "[::1", "a b"])
def test_a_name_that_could_be_rebound_gets_nothing(site: Site, host: str) -> None:
    for path in ("/", "/events", "/live", "/static/page.js"):
        answer = site.get(path, host=host)
        assert answer.status in (400, 421)
        assert "sales" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:9084", "10.1.2.3:9084"])
def test_addresses_and_localhost_are_let_in(site: Site, host: str) -> None:
    assert site.get("/service", host=host).status == 200


def test_a_name_that_the_operator_allows_is_let_in(tmp_path: Path) -> None:
    with running_service(tmp_path, **{**SETTINGS, "web_hosts": ["Lake.example"]}) as service:
        site = Site(service)
        assert site.get("/", host="lake.example:80").status == 200
        assert site.get("/", host="other.example").status == 421


def test_another_site_may_link_here_and_nothing_else(site: Site) -> None:
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert site.get("/", **link).status == 200
    for dest, mode in (("iframe", "navigate"), ("image", "no-cors"), ("script", "no-cors"), ("empty", "cors")):
        refused = site.get("/", sec_fetch_site="cross-site", sec_fetch_mode=mode, sec_fetch_dest=dest)
        assert refused.status == 403
        assert "sales" not in refused.text
    assert site.post(ACTION, {}, **link).status == 403


def test_an_action_is_done_once_and_told_with_who_asked(site: Site, lake: WebLake, acted: str) -> None:
    before = versions(lake)
    form = Form(site, "action=restore&version=1")
    for _ in range(2):  # as after a reload
        answer = form.send()
        assert answer.status == 303
        assert answer.headers["location"] == f"{TABLE}/timeline?done=yes"
    assert versions(lake) == before + 1
    assert "web page, 127.0.0.1" in site.get("/events?only=sales.acted").text


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "https://127.0.0.1.evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"cookie": ""},
        {"cookie": f"lakemark-web={'x' * 43}"},
    ],
)
def test_an_action_from_elsewhere_is_refused(site: Site, lake: WebLake, acted: str, headers: dict[str, str]) -> None:
    before = versions(lake)
    assert Form(site, "action=restore&version=1").send(**headers).status == 403
    assert versions(lake) == before


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": ""},
        {"sec_fetch_site": "cross-site"},
        {"cookie": f"lakemark-web={'x' * 43}"},
        {"host": "evil.example"},
    ],
)
def test_an_action_on_a_group_from_elsewhere_is_refused(site: Site, headers: dict[str, str]) -> None:
    form = Form(site, "action=pause&group=safe", GROUPS)
    assert form.send(**headers).status in (403, 421)
    assert [one.name for one in site.service.optimization.groups()[0] if one.paused] == []


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "a b"])
@pytest.mark.parametrize("action", [ACTION, GROUPS])
def test_a_name_that_could_be_rebound_does_nothing(
    site: Site, lake: WebLake, acted: str, action: str, host: str
) -> None:
    """Not even with a form, its cookie, and an origin that fits the name."""
    before = versions(lake)
    query = "action=pause&group=safe" if action == GROUPS else "action=restore&version=1"
    assert Form(site, query, action).send(host=host, origin=f"http://{host}").status in (400, 421)
    assert versions(lake) == before
    assert [one.name for one in site.service.optimization.groups()[0] if one.paused] == []


@pytest.mark.parametrize("token", ["", "0" * 64, "ü"])
def test_an_action_without_its_token_is_refused(site: Site, lake: WebLake, acted: str, token: str) -> None:
    before = versions(lake)
    form = Form(site, "action=restore&version=1")
    form.fields["token"] = token
    assert form.send().status == 403
    assert versions(lake) == before


def test_a_form_that_is_no_form_is_refused(site: Site, acted: str) -> None:
    form = Form(site, "action=restore&version=1")
    assert form.send(**{"content-type": "text/plain"}).status == 415
    form.fields["name"] = "x" * 70_000
    assert form.send().status == 413
    form.fields |= {"name": "", "request_id": "mine"}
    assert form.send().status == 400


def test_a_tag_a_branch_and_a_rollback(site: Site, lake: WebLake, acted: str) -> None:
    table = lake.service.catalog.get_lake_table("hive", "sales", "acted")
    assert Form(site, "action=reference&kind=tag&name=kept&version=2&branch=main").send().status == 303
    assert Form(site, "action=reference&kind=branch&name=work&version=&branch=main").send().status == 303
    names = {one.name: one for one in lake.service.timeline.references.find(table)}
    assert (names["kept"].kind, names["kept"].version) == (catalog_pb2.TAG, 2)
    assert names["work"].kind == catalog_pb2.BRANCH
    instant = lake.open(table)
    assert Form(site, f"action=rollback&instant={instant}").send().status == 303
    record, _ = lake.service.timeline.instant(table.table_id, instant)
    assert record.rolled_back_reason == "rolled back by an operator on the web page (web page, 127.0.0.1)"
    again = Form(site, "action=reference&kind=tag&name=kept&version=2&branch=main").send()
    assert again.status == 409
    assert "already has a tag" in again.text


def test_actions_are_off_unless_switched_on(tmp_path: Path) -> None:
    with running_service(tmp_path, **{**SETTINGS, "web_actions": False}) as service:
        lake, site = WebLake(service), Site(service)
        lake.database("sales")
        table = lake.table("acted")
        lake.put(table, [MEGA])
        assert "Restore" not in site.get(TABLE).text
        assert "/action" not in site.get(f"{TABLE}/optimizing").text
        assert site.post(ACTION, {"action": "pause"}, origin=f"http://{site.host}").status == 409
        assert "/action" not in site.get("/optimizer").text
        assert site.get(f"{GROUPS}?action=pause&group=etl").status == 409
        assert site.post(GROUPS, {"action": "pause", "group": "etl"}, origin=f"http://{site.host}").status == 409
        assert service.optimization.groups()[0] == []
        assert service.optimization.explain(table).state != optimization_pb2.PAUSED
        assert site.get(f"{ACTION}?action=restore&version=1").status == 409
        answer = site.post(ACTION, {"action": "restore", "version": "1"}, origin=f"http://{site.host}")
        assert answer.status == 409
        assert "switched off" in answer.text
        assert versions(lake) == 1
