"""What can be done on the pages, where that is switched on: each is asked for once more, done once, and logged."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from lakemark_core.errors import InvalidArgument, LakemarkError
from lakemark_core.optimization import GROUP_PROPERTY, check_group
from lakemark_proto.v1 import catalog_pb2, optimization_pb2
from lakemark_server.catalog.lake import LakeTable
from lakemark_server.context import caller
from lakemark_server.optimization.service import HOLD_MS_MAX
from lakemark_server.timeline.references import ReferenceDraft
from lakemark_web import texts
from lakemark_web.domains import Domains
from lakemark_web.pages.moments import whole

REASON: Final = "rolled back by an operator on the web page"
FIELDS: Final = ("action", "instant", "version", "branch", "name", "kind", "why", "minutes", "group")
PARTITION: Final = "partition"
"""The field that is taken as it is: values may begin and end with spaces."""

KINDS: Final = {"minor": optimization_pb2.MINOR, "major": optimization_pb2.MAJOR, "full": optimization_pb2.FULL}
_REQUEST_ID: Final = re.compile(r"web-[0-9a-f]{32}")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Action:
    """What is to be done with a table. ``warning``: what it means, for whoever is asked; ``fields``: of the form.

    ``page``: of the table, on which to see what came of it; it says nothing of others.
    """

    title: str
    warning: str
    button: str
    fields: Mapping[str, str]
    page: str = "timeline"


def asked_for(table: LakeTable, given: Mapping[str, str]) -> Action:
    """The action that a form asks for, in words. Raises InvalidArgument."""
    fields = {name: given.get(name, "").strip() for name in FIELDS} | {PARTITION: given.get(PARTITION, "")}
    branch = fields["branch"] or "main"
    match fields["action"]:
        case "rollback":
            instant = whole("instant", fields["instant"])
            return Action(
                f"Roll back instant {instant} of {table.name}",
                f"Its writer began at {texts.time(instant)} UTC. Its files are deleted, what it staged is forgotten, "
                "and it cannot commit any more, even if it is alive.",
                "Roll back",
                fields,
            )
        case "restore":
            version = whole("version", fields["version"])
            return Action(
                f"Restore {table.name} to version {version}",
                f"A new version of branch {branch} gets the files of version {version}. The versions in between stay: "
                "this can be undone in the same way.",
                "Restore",
                fields,
            )
        case "reference":
            version = whole("version", fields["version"]) if fields["version"] else 0
            if not fields["name"]:
                raise InvalidArgument("a tag or a branch needs a name")
            kind = "branch" if fields["kind"] == "branch" else "tag"
            at = f"version {version}" if version else "the latest version"
            meaning = "goes on from that version" if kind == "branch" else "keeps that version until it is dropped"
            return Action(
                f"Create {kind} {fields['name']} of {table.name}",
                f"At {at} of branch {branch}. A {kind} {meaning}.",
                f"Create {kind}",
                fields,
            )
    return _of_optimizer(table, fields)


def _of_optimizer(table: LakeTable, fields: Mapping[str, str]) -> Action:
    """Raises InvalidArgument."""
    partition = fields[PARTITION]
    what = f"partition {partition} of {table.name}" if partition else table.name
    why = f" Reason: {fields['why']}" if fields["why"] else ""
    match fields["action"]:
        case "optimize":
            kind = _kind(fields)
            return Action(
                f"Run a {kind} optimization of {what} now",
                "It is planned as soon as a worker is free, whatever thresholds and intervals say. Holds and pauses "
                "still count.",
                "Run now",
                fields,
                "optimizing",
            )
        case "pause":
            return Action(
                f"Pause the optimizer on {table.name}",
                f"Nothing more is planned until somebody resumes it. What runs goes on to its end.{why}",
                "Pause",
                fields,
                "optimizing",
            )
        case "resume":
            return Action(
                f"Resume the optimizer on {table.name}",
                "A pause ends, and partitions that were stopped after failures are tried again. Holds stay.",
                "Resume",
                fields,
                "optimizing",
            )
        case "hold":
            return Action(
                f"Hold {what} for {texts.duration(_hold_ms(fields))}",
                f"The optimizer plans nothing for it during this time. What runs goes on to its end.{why}",
                "Hold",
                fields,
                "optimizing",
            )
        case "release":
            meaning = "The hold ends, and the optimizer looks at it again."
            return Action(f"Release {what}", meaning, "Release", fields, "optimizing")
        case "move":
            check_group(fields["group"])
            return Action(
                f"Move {table.name} to group {fields['group']}",
                "Workers of that group do its next runs. What runs goes on to its end. This sets the property "
                f"{GROUP_PROPERTY} of the table.",
                "Move",
                fields,
                "optimizing",
            )
    raise InvalidArgument(f"there is no action {fields['action'][:50]!r}")


def _kind(fields: Mapping[str, str]) -> str:
    kind = fields["kind"] or "minor"
    if kind not in KINDS:
        raise InvalidArgument(f"there is no kind {kind[:50]!r} of runs; there are {', '.join(KINDS)}")
    return kind


def _hold_ms(fields: Mapping[str, str]) -> int:
    duration_ms = whole("minutes", fields["minutes"]) * 60_000
    if not 0 < duration_ms <= HOLD_MS_MAX:
        raise InvalidArgument(f"a hold lasts from 1 to {HOLD_MS_MAX // 60_000:,} minutes")
    return duration_ms


def run(domains: Domains, table: LakeTable, given: Mapping[str, str]) -> Action:
    """Does it, once for each request id. Raises what the domain raises."""
    action = asked_for(table, given)
    perform(action, given, lambda request_id: _done(domains, table, action.fields, request_id), table=table.name)
    return action


def perform(action: Action, given: Mapping[str, str], do: Callable[[str], str], **about: str) -> None:
    """Does it, and logs who has asked for it and what came of it, which ``do`` returns for a request id.

    ``given``: the form. Raises InvalidArgument for a form without request id, and what ``do`` raises.
    """
    request_id = given.get("request_id", "")
    if not _REQUEST_ID.fullmatch(request_id):
        raise InvalidArgument("the form is incomplete: go back, and begin again")
    told = {"action": action.fields["action"], **about, "by": caller.current()}
    told |= {name: value for name, value in action.fields.items() if value and name != "action"}
    try:
        done = do(request_id)
    except LakemarkError as error:
        _log.warning("an action on the web page failed", **told, code=error.code, reason=error.message)
        raise
    _log.info("an action on the web page", **told, outcome=done)


def _done(domains: Domains, table: LakeTable, fields: Mapping[str, str], request_id: str) -> str:
    branch = "" if fields["branch"] == "main" else fields["branch"]
    if fields["action"] == "rollback":
        record = domains.timeline.rollback(table, whole("instant", fields["instant"]), f"{REASON} ({caller.current()})")
        return f"instant {record.instant} is rolled back"
    if fields["action"] == "restore":
        version = whole("version", fields["version"])
        restored = domains.timeline.restore(
            table, version, branch=branch, request_id=request_id, owner=caller.current()
        )
        return f"version {restored.version} has the files of version {version}"
    if fields["action"] != "reference":
        return _optimized(domains, table, fields, request_id)
    kind = catalog_pb2.BRANCH if fields["kind"] == "branch" else catalog_pb2.TAG
    draft = ReferenceDraft(
        fields["name"],
        kind,
        branch,
        whole("version", fields["version"]) if fields["version"] else 0,
        request_id=request_id,
    )
    reference = domains.timeline.references.create(table, draft)
    return f"{reference.name} is at version {reference.version}"


def _optimized(domains: Domains, table: LakeTable, fields: Mapping[str, str], request_id: str) -> str:
    optimization, partition, reason = domains.optimization, fields[PARTITION], fields["why"]
    match fields["action"]:
        case "optimize":
            optimization.request(table, partition, KINDS[_kind(fields)], request_id)
            return "a run was asked for"
        case "pause":
            optimization.pause(table, reason, request_id)
            return "the optimizer is paused"
        case "resume":
            optimization.resume(table, request_id)
            return "the optimizer goes on"
        case "move":
            record = table.record
            place = record.catalog, record.database, record.name
            domains.catalog.set_properties(*place, {GROUP_PROPERTY: fields["group"]}, (), request_id=request_id)
            return f"the table is in group {fields['group']}"
        case "hold":
            held = optimization.hold(table, partition, _hold_ms(fields), reason, request_id)
            return f"held until {texts.time(held.until_ms)} UTC"
    released = optimization.release(table, partition, request_id)
    return "the hold has ended" if released else "there was no hold any more"
