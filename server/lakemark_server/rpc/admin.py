"""AdminService over the admission domain."""

from __future__ import annotations

import grpc

from lakemark_proto.v1 import admin_pb2 as pb
from lakemark_proto.v1.admin_pb2_grpc import AdminServiceServicer
from lakemark_server.admission.quotas import Quotas
from lakemark_server.admission.ranks import Rank
from lakemark_server.admission.tenants import Tenants
from lakemark_server.catalog.names import legal_catalog
from lakemark_server.rpc.catalog import page_limit
from lakemark_server.rpc.declaration import method
from lakemark_server.rpc.pages import cut

Context = grpc.ServicerContext


class AdminServicer(AdminServiceServicer):
    def __init__(self, quotas: Quotas, tenants: Tenants) -> None:
        self._quotas = quotas
        self._tenants = tenants

    @method(Rank.VITAL)
    def GetQuota(self, request: pb.GetQuotaRequest, context: Context) -> pb.TenantQuota:
        return self._with_requests(self._quotas.get(legal_catalog(request.catalog)))

    @method(Rank.VITAL)
    def SetQuota(self, request: pb.SetQuotaRequest, context: Context) -> pb.TenantQuota:
        catalog = legal_catalog(request.catalog)
        return self._with_requests(
            self._quotas.set(
                catalog, request.quota, request.clear, clear_all=request.clear_all, request_id=request.request_id
            )
        )

    @method(Rank.VITAL)
    def ListQuotas(self, request: pb.ListQuotasRequest, context: Context) -> pb.ListQuotasResponse:
        limit = page_limit(request.page_size)
        quotas = self._quotas.list(request.page_token, limit + 1)
        page, token = cut(quotas, limit, lambda quota: quota.catalog)
        return pb.ListQuotasResponse(quotas=map(self._with_requests, page), next_page_token=token)

    def _with_requests(self, quota: pb.TenantQuota) -> pb.TenantQuota:
        """Adds the counts of requests, which only this process knows."""
        quota.usage.running_requests, quota.usage.refused_requests = self._tenants.seen(quota.catalog)
        return quota
