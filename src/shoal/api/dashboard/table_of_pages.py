"""The table of pages: path, function, and the required role."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from shoal.api.auth import Role
from shoal.api.dashboard.pages import crawl
from shoal.api.dashboard.pages.audit import audit_page
from shoal.api.dashboard.pages.crawls import page_of_crawls
from shoal.api.dashboard.pages.find import find_page
from shoal.api.dashboard.pages.hosts import host_page, hosts_page
from shoal.api.dashboard.pages.new_crawl import new_crawl_page
from shoal.api.dashboard.pages.overview import overview
from shoal.api.dashboard.pages.records import record_page, records_page
from shoal.api.dashboard.pages.workers import workers_page
from shoal.api.dashboard.view import DashboardPage, View


class PageRoute(NamedTuple):
    path: str
    page: Callable[[View], Awaitable[DashboardPage]]
    role: Role = Role.READ
    # It concerns the fleet, so a token that is bound to an application is refused.
    fleet_wide: bool = False


PAGES = (
    PageRoute("/", overview),
    PageRoute("/crawls", page_of_crawls),
    PageRoute("/crawls/{crawl}", crawl.crawl_page),
    PageRoute("/crawls/{crawl}/failed", crawl.failed_page),
    PageRoute("/crawls/{crawl}/hosts", crawl.hosts_page),
    PageRoute("/crawls/{crawl}/records", records_page),
    PageRoute("/crawls/{crawl}/record", record_page),
    PageRoute("/find", find_page),
    PageRoute("/new", new_crawl_page, Role.SUBMIT),
    PageRoute("/hosts", hosts_page, fleet_wide=True),
    PageRoute("/hosts/{host}", host_page, fleet_wide=True),
    PageRoute("/audit", audit_page, Role.ADMIN, fleet_wide=True),
    PageRoute("/workers", workers_page, fleet_wide=True),
)
