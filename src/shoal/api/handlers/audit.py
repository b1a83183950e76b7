"""The audit trail over HTTP: who changed what, and when."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from shoal.api.problem_details import Json
from shoal.api.request import RequestContext
from shoal.frontier.audit_trail import MAX_ENTRIES, AuditRecord


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """The latest changes, newest first."""

    entries: list[AuditRecord]


async def listing(context: RequestContext) -> Response:
    limit = context.integer("limit", 100, MAX_ENTRIES)
    return Json(AuditPage(entries=await context.frontier.audit_trail.read(limit)))
