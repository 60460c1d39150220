"""Quotas of tenants: what a catalog may have, and what it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from google.protobuf.message import Message

from lakemark.arguments import checked
from lakemark.client.calls import Calls
from lakemark_core.errors import InvalidArgument
from lakemark_proto.v1 import admin_pb2 as pb
from lakemark_proto.v1.admin_pb2_grpc import AdminServiceStub

QUOTA_NAMES: Final = tuple(field.name for field in pb.Quota.DESCRIPTOR.fields)


@dataclass(frozen=True, slots=True)
class TenantQuota:
    """Of one catalog, by name: the ``limits`` that hold, those that are its ``own``, and how much it uses.

    ``running_requests`` and ``refused_requests`` are those of the process that answered.
    """

    catalog: str
    limits: Mapping[str, float]
    own: Mapping[str, float]
    usage: Mapping[str, int]


@checked
class Quotas:
    """``client.quotas``. ``catalog`` "" is the default one."""

    def __init__(self, calls: Calls) -> None:
        self._call = calls
        self._stub = AdminServiceStub(calls.channel)

    def get(self, catalog: str = "") -> TenantQuota:
        return _from(self._call(self._stub.GetQuota, pb.GetQuotaRequest(catalog=catalog)))

    def set(self, catalog: str = "", **limits: float) -> TenantQuota:
        """Limits that are not named stay. Raises InvalidArgument for one that there is not, or that is negative."""
        quota = pb.Quota()
        for name, value in limits.items():
            if name not in QUOTA_NAMES:
                raise InvalidArgument(f"there is no limit {name!r}; there are: {', '.join(QUOTA_NAMES)}")
            try:
                setattr(quota, name, value)
            except (TypeError, ValueError) as error:
                raise InvalidArgument(f"{name} must be a whole number below 2^63, and is {value!r}") from error
        return self._set(pb.SetQuotaRequest(catalog=catalog, quota=quota))

    def clear(self, catalog: str = "", *names: str) -> TenantQuota:
        """These limits, or all of them, are the service's defaults again."""
        return self._set(pb.SetQuotaRequest(catalog=catalog, clear=names, clear_all=not names))

    def list(self) -> Iterator[TenantQuota]:
        """Of all catalogs that have databases or limits of their own, in order of name."""
        token = ""
        while True:
            answer = self._call(self._stub.ListQuotas, pb.ListQuotasRequest(page_token=token))
            yield from map(_from, answer.quotas)
            token = answer.next_page_token
            if not token:
                return

    def _set(self, request: pb.SetQuotaRequest) -> TenantQuota:
        request.request_id = str(uuid4())
        return _from(self._call(self._stub.SetQuota, request, mutation=True))


def _from(answer: pb.TenantQuota) -> TenantQuota:
    usage = {field.name: getattr(answer.usage, field.name) for field in pb.Usage.DESCRIPTOR.fields}
    return TenantQuota(answer.catalog, _given(answer.limits), _given(answer.own), usage)


def _given(quota: Message) -> dict[str, float]:
    return {field.name: value for field, value in quota.ListFields()}
