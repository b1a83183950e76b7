"""Every setting of Shoal, by the tables of shoal.toml. docs/reference/settings.md is generated from this."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from shoal.errors import SettingsError
from shoal.settings.fields import PREFIX, Field, Section, fields_of

# The token that a client of the HTTP API sends. It is not a setting, because a token must not be in a repository.
TOKEN_VARIABLE = f"{PREFIX}TOKEN"


class StoreSettings(Section, frozen=True, kw_only=True):
    """Where the frontier is kept."""

    section: ClassVar[str] = "store"

    url: Annotated[
        str,
        Meta(
            description="Address of the Valkey or Redis server; empty starts the embedded one in `store.folder`.",
            # shoal.store checks the scheme.
            pattern=r"\A(?:[a-z][a-z+]*://.+)?\Z",
            extra={"expects": "empty or a URL like redis://host:6379/0"},
        ),
    ] = ""
    folder: Annotated[
        str,
        Meta(
            description="Folder in which the embedded store keeps its data.",
            min_length=1,
            extra={"expects": "the path of a folder"},
        ),
    ] = ".shoal"
    namespace: Annotated[
        str,
        Meta(
            description="First part of every key, so that several frontiers can share one server.",
            pattern=r"\A[a-z0-9_-]{1,16}\Z",
            extra={"expects": "1 to 16 characters from a-z, 0-9, _ and -"},
        ),
    ] = "shoal"
    shards: Annotated[
        int,
        Meta(
            description="Number of shards of a new store; an existing store keeps its own.",
            ge=1,
            le=1024,
        ),
    ] = 16
    server: Annotated[
        str,
        Meta(
            description="Server program of the embedded store; empty means the bundled one, or else the one on PATH.",
            extra={"expects": "empty or the path of a valkey-server or redis-server"},
        ),
    ] = ""
    maxmemory: Annotated[
        str,
        Meta(
            description="Memory limit of the embedded store; empty means half of the machine's RAM.",
            pattern=r"\A(?:[1-9][0-9]{0,15}(?:[kKmMgG][bB]?|[bB])?)?\Z",
            extra={"expects": "empty or a size like 512mb or 4gb"},
        ),
    ] = ""
    timeout_seconds: Annotated[
        float,
        Meta(description="How long a call to an unavailable store is retried before it fails.", ge=0, le=86400),
    ] = 60.0


class FrontierSettings(Section, frozen=True, kw_only=True):
    """How visits are leased and retried, and when they fail."""

    section: ClassVar[str] = "frontier"

    lease_seconds: Annotated[
        float, Meta(description="How long a worker may hold a host before it must renew.", ge=1, le=3600)
    ] = 60.0
    batch_seconds: Annotated[
        float,
        Meta(description="A lease carries as many visits as fit into this time, at least one.", ge=0.1, le=60),
    ] = 2.0
    expiries: Annotated[
        int, Meta(description="How many leases of a visit may expire before the visit fails.", ge=1, le=255)
    ] = 10
    blames: Annotated[
        int, Meta(description="How many workers a visit may kill before it fails as poison.", ge=1, le=255)
    ] = 3
    host_failures: Annotated[
        int, Meta(description="Failures in a row after which a host is given up.", ge=1, le=100_000)
    ] = 10
    backoff_seconds: Annotated[
        float,
        Meta(
            description="Wait before the first retry of a URL, and the first pause of a failing host; both double.",
            ge=0.01,
            le=3600,
        ),
    ] = 5.0
    longest_backoff_seconds: Annotated[
        float,
        Meta(description="Longest pause of a failing host; four times that after 403 and 429.", ge=1, le=86400),
    ] = 900.0
    keep_days: Annotated[
        float,
        Meta(
            description="Days after which an ended crawl is deleted from the store, except for its id. 0 means never.",
            ge=0,
            le=36500,
        ),
    ] = 90.0


class FetchSettings(Section, frozen=True, kw_only=True):
    """How a worker sends requests. Timeout, user agent and headers are options of a crawl."""

    section: ClassVar[str] = "fetch"

    allow_networks: Annotated[
        str,
        Meta(
            description="Private networks that may be requested, separated by commas; all others are refused.",
            extra={"expects": "empty or networks like 127.0.0.0/8,10.1.0.0/16"},
        ),
    ] = ""
    proxy: Annotated[
        str,
        Meta(
            description="Forward proxy for all requests; the environment's HTTP_PROXY is never used.",
            pattern=r"\A(?:https?://(?:\S*@)?(?:\[[0-9A-Fa-f:.]+\]|[^\[\]/@:\s]+)(?::[0-9]{1,5})?/?)?\Z",
            extra={"expects": "empty or a URL like http://proxy.example:3128"},
        ),
    ] = ""
    bandwidth: Annotated[
        int,
        Meta(description="Bytes per second that one worker process may receive; 0 means no limit.", ge=0, le=10**12),
    ] = 0
    cache: Annotated[
        str,
        Meta(
            description="Folder of cached responses, for developing a spider: a cached page is not requested again.",
            max_length=4096,
            extra={"expects": "empty or a folder"},
        ),
    ] = ""
    connections: Annotated[
        int, Meta(description="Connections one worker process keeps open for reuse.", ge=1, le=10_000)
    ] = 1000


def networks_of(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """The networks that `fetch.allow_networks` lists."""
    networks = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            networks.append(ipaddress.ip_network(part))
        except ValueError as error:
            raise SettingsError(
                f"fetch.allow_networks has {part[:60]!r}, which is not a valid network ({error}): write 10.1.0.0/16, "
                f"127.0.0.1 or fd00::/8, separated by commas."
            ) from None
    return tuple(networks)


class WorkerSettings(Section, frozen=True, kw_only=True):
    """The limits of one worker process."""

    section: ClassVar[str] = "worker"

    hosts: Annotated[
        int, Meta(description="How many hosts a worker process requests at the same time.", ge=1, le=10_000)
    ] = 200
    grace_seconds: Annotated[
        float, Meta(description="How long open requests may continue after a signal to stop.", ge=0, le=600)
    ] = 10.0
    parse_seconds: Annotated[
        float,
        Meta(description="CPU seconds that parsing one page may take before its process is killed.", ge=1, le=3600),
    ] = 30.0
    health: Annotated[
        str,
        Meta(
            description="Port for health checks of `shoal worker` (`/healthz`, `/readyz`); empty disables them.",
            pattern=r"\A(?:(?:\[[0-9A-Fa-f:.]+\]:|[^\[\]/@:\s]+:)?[0-9]{1,5})?\Z",
            extra={"expects": "empty, a port like 8081, or an address and a port like 0.0.0.0:8081"},
        ),
    ] = ""
    memory: Annotated[
        int, Meta(description="Bytes of memory one worker process may use; 0 means no limit.", ge=0, le=2**50)
    ] = 2_000_000_000


class ApiSettings(Section, frozen=True, kw_only=True):
    """The address of `shoal serve`, and its limits."""

    section: ClassVar[str] = "api"

    host: Annotated[
        str,
        Meta(
            description="Address to listen on; without tokens only a loopback address is allowed.",
            min_length=1,
            extra={"expects": "an address such as 127.0.0.1 or 0.0.0.0"},
        ),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(description="Port to listen on; 0 chooses a free one.", ge=0, le=65535)] = 8080
    rate: Annotated[
        float,
        Meta(description="Requests per second that one token may make.", ge=1, le=10**6),
    ] = 100.0
    connections_per_address: Annotated[
        int,
        Meta(description="Connections that one address may have open; raise it for a reverse proxy.", ge=1, le=1000),
    ] = 200
    indexnow: Annotated[
        str,
        Meta(
            description="Perpetual crawls that accept IndexNow reports, comma-separated; empty disables `/indexnow`.",
            pattern=r"\A[A-Za-z0-9_.:@, -]*\Z",
            max_length=10_000,
            extra={"expects": "empty or ids of crawls, separated by commas"},
        ),
    ] = ""


class TelemetrySettings(Section, frozen=True, kw_only=True):
    """Traces and metrics of workers for an OpenTelemetry collector. Needs the extra `otel`."""

    section: ClassVar[str] = "telemetry"

    url: Annotated[
        str,
        Meta(
            description="Address of an OpenTelemetry collector that accepts OTLP over HTTP; empty sends nothing.",
            pattern=r"\A(?:https?://\S+)?\Z",
            extra={"expects": "empty or a URL like http://collector.example:4318"},
        ),
    ] = ""
    traces: Annotated[float, Meta(description="Share of visits that are traced, from 0 to 1.", ge=0, le=1)] = 0.01
    metrics_seconds: Annotated[float, Meta(description="How often a worker sends its metrics.", ge=0.1, le=3600)] = 60.0


# Tables of shoal.toml with names that the user chooses, and their descriptions.
TABLES: Mapping[str, str] = {
    "outputs": "Named outputs: a crawl uses the name, and the address with its password stays on the workers.",
    "sources": "Named sources of `shoal listen`, so that their passwords are not on the command line.",
    "spiders": "Named spiders, as `FILE.py:Class` or `module:Class`.",
    "tokens": "Tokens of the HTTP API: `role sha256:...` or `role:app sha256:...`; see `shoal serve --make-token`.",
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. A part of Shoal takes the section it needs, never the whole."""

    store: StoreSettings = StoreSettings()
    frontier: FrontierSettings = FrontierSettings()
    fetch: FetchSettings = FetchSettings()
    worker: WorkerSettings = WorkerSettings()
    api: ApiSettings = ApiSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    outputs: dict[str, str] = {}
    sources: dict[str, str] = {}
    spiders: dict[str, str] = {}
    tokens: dict[str, str] = {}

    def __repr__(self) -> str:
        sections = ", ".join(f"{section.section}={getattr(self, section.section)!r}" for section in SECTIONS)
        # Their values may be secrets.
        return f"Settings({sections}, {', '.join(f'{name}={sorted(getattr(self, name))}' for name in TABLES)})"


SECTIONS: tuple[type[Section], ...] = (
    StoreSettings, FrontierSettings, FetchSettings, WorkerSettings, ApiSettings, TelemetrySettings
)  # fmt: skip
FIELDS: Mapping[str, Field] = {field.key: field for section in SECTIONS for field in fields_of(section)}
# Old names of settings. They are accepted with a warning.
RENAMED: Mapping[str, str] = {"store.patience_seconds": "store.timeout_seconds"}
# In ascending order of precedence. SHOAL_STORE is a short name for people; platforms set REDIS_URL.
VARIABLES: Mapping[str, Field] = {
    "REDIS_URL": FIELDS["store.url"],
    f"{PREFIX}STORE": FIELDS["store.url"],
    **{field.variable: field for field in FIELDS.values()},
}
