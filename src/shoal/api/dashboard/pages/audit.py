"""The audit trail: who did what, and when."""

from __future__ import annotations

from shoal.api.dashboard.components import empty, foreign, table, timestamp
from shoal.api.dashboard.html import E, Node
from shoal.api.dashboard.view import DashboardPage, View, live

_SHOWN = 200


async def audit_page(view: View) -> DashboardPage:
    entries = await view.frontier.audit_trail.read(_SHOWN)
    rows: list[list[Node]] = [
        # The caller has its own column.
        [timestamp(entry.at), foreign(entry.text.removesuffix(f" by {entry.who}.").removesuffix(".") + ".", 300),
         foreign(entry.who), entry.role, entry.event]
        for entry in entries
    ]  # fmt: skip
    shown = table("Changes", ("=Time", ">What", "Who", "Role", "=Event"), rows) if rows else empty("No changes yet.")
    content: list[Node] = [
        E.h1("Audit trail"),
        E.p("Changes made through the API and this dashboard. The server's log has all of them, and refused requests.",
            class_="quiet"),
        live("entries", shown),
    ]  # fmt: skip
    return DashboardPage("Audit trail", content, "Audit trail")
