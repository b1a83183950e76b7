"""Every setting of Shoal as one typed, frozen value, and the order in which sources override each other.

    defaults < shoal.toml < REDIS_URL (only for store.url) < SHOAL_* < flags

This package owns names, types, ranges and descriptions of settings; docs/reference/settings.md is generated from them.
It opens one file and nothing else: it does not check whether a store can be reached or a folder can be written. An
invalid value raises a SettingsError that names key, value and origin. An unknown variable is only a warning, because
Kubernetes injects variables such as SHOAL_PORT_6379_TCP into every container beside a service.
"""

from shoal.settings.fields import Field, fields_of
from shoal.settings.loading import Loaded, load
from shoal.settings.secrets import masked
from shoal.settings.sections import (
    FIELDS,
    SECTIONS,
    TABLES,
    ApiSettings,
    FetchSettings,
    FrontierSettings,
    Settings,
    StoreSettings,
    TelemetrySettings,
    WorkerSettings,
)

__all__ = [
    "FIELDS",
    "SECTIONS",
    "TABLES",
    "ApiSettings",
    "FetchSettings",
    "Field",
    "FrontierSettings",
    "Loaded",
    "Settings",
    "StoreSettings",
    "TelemetrySettings",
    "WorkerSettings",
    "fields_of",
    "load",
    "masked",
]
