"""What an operator may do with a group of the optimizer: asked for once more, done once, and logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakemark_core.errors import InvalidArgument
from lakemark_core.optimization import check_group
from lakemark_proto.v1 import optimization_pb2 as pb
from lakemark_web import texts
from lakemark_web.domains import Domains
from lakemark_web.pages.actions import Action, perform
from lakemark_web.pages.moments import whole

FIELDS: Final = ("action", "group", "order", "minutes")
MINUTES_MAX: Final = 1_000_000
"""Of worker time in an hour."""

ORDERS: Final = {"fair": pb.FAIR, "priority": pb.PRIORITY, "fifo": pb.FIFO}


def asked_for(given: Mapping[str, str]) -> Action:
    """The action that a form asks for, in words. Raises InvalidArgument."""
    fields = {name: given.get(name, "").strip() for name in FIELDS}
    group = fields["group"]
    check_group(group)
    match fields["action"]:
        case "pause":
            return Action(
                f"Pause group {group}",
                "Its workers get no more tasks until somebody resumes it. What runs goes on to its end.",
                "Pause",
                fields,
            )
        case "resume":
            return Action(f"Resume group {group}", "Its workers get tasks again.", "Resume", fields)
        case "change":
            return Action(f"Change group {group}", f"From now on: {_wanted(fields)}.", "Change", fields)
    raise InvalidArgument(f"there is no action {fields['action'][:50]!r} on a group")


def run(domains: Domains, given: Mapping[str, str]) -> None:
    """Does it, once for each request id. Raises what the domain raises."""
    action = asked_for(given)

    def do(request_id: str) -> str:
        fields = action.fields
        order, quota_ms, paused = pb.GROUP_ORDER_UNSPECIFIED, None, None
        if fields["action"] == "change":
            order, quota_ms = _order(fields), _quota_ms(fields)
        else:
            paused = fields["action"] == "pause"
        made = domains.optimization.set_group(fields["group"], order, quota_ms, paused, request_id)
        return f"the group {'is paused' if made.paused else 'gets tasks'}, with a quota of {made.quota_ms} ms"

    perform(action, given, do, group=action.fields["group"])


def _wanted(fields: Mapping[str, str]) -> str:
    """Raises InvalidArgument."""
    order, quota_ms = fields["order"], _quota_ms(fields)
    told = [f"order {order}"] if _order(fields) else []
    if quota_ms is not None:
        limit = f"at most {texts.counted(quota_ms // 60_000, 'minute')}" if quota_ms else "no limit"
        told.append(f"{limit} of worker time in an hour")
    if not told:
        raise InvalidArgument("say which order or which quota the group gets")
    return ", ".join(told)


def _order(fields: Mapping[str, str]) -> pb.GroupOrder.ValueType:
    order = fields["order"]
    if order and order not in ORDERS:
        raise InvalidArgument(f"there is no order {order[:50]!r}; there are {', '.join(ORDERS)}")
    return ORDERS.get(order, pb.GROUP_ORDER_UNSPECIFIED)


def _quota_ms(fields: Mapping[str, str]) -> int | None:
    minutes = whole("minutes", fields["minutes"]) if fields["minutes"] else None
    if minutes is not None and minutes > MINUTES_MAX:
        raise InvalidArgument(f"a quota has at most {MINUTES_MAX:,} minutes; 0 is no limit")
    return None if minutes is None else minutes * 60_000
