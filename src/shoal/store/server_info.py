"""Server information, read when a connection is opened: INFO and, if allowed, CONFIG GET.

Decides whether a server is safe for a frontier; sends no commands itself. A server that could silently drop URLs is
refused. A server that may lose some in a restart is accepted, with a warning about what would be lost.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.errors import StoreRefused


class ServerInfo(msgspec.Struct, frozen=True):
    """None means unknown (CONFIG is forbidden on many managed servers)."""

    run_id: str
    pid: int
    product: str  # "Valkey" or "Redis"
    version: tuple[int, ...]
    role: str
    replicas: int
    loading: bool
    maxmemory: int
    maxmemory_policy: str
    append_only: bool
    appendfsync: str | None
    snapshots: bool | None
    min_replicas_to_write: int | None

    @property
    def durable(self) -> bool:
        """A restart loses nothing: every confirmed write is on the disk, and no failover can switch to another copy."""
        return self.append_only and self.appendfsync == "always" and not self.replicas

    @property
    def confirms(self) -> bool:
        """A replica can confirm a write: there is one, or the server refuses writes without one."""
        return self.replicas > 0 or bool(self.min_replicas_to_write)

    @property
    def named(self) -> str:
        return f"{self.product} {'.'.join(map(str, self.version))}"


def parse_facts(info: Any, config: Any) -> ServerInfo:
    """Build a ServerInfo from the replies to INFO and CONFIG GET (which may be an error)."""
    fields: dict[str, str] = {}
    if isinstance(info, bytes):
        for line in info.decode("utf-8", "replace").splitlines():
            name, colon, value = line.partition(":")
            if colon:
                fields[name] = value
    settings: dict[str, str] = {}
    if isinstance(config, list):
        texts = [item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in config]
        settings = dict(zip(texts[::2], texts[1::2], strict=False))
    version_text = fields.get("valkey_version") or fields.get("redis_version", "")
    min_replicas = settings.get("min-replicas-to-write")
    if min_replicas is None and fields and "connected_slaves" in fields:
        # INFO counts good replicas exactly when min-replicas-to-write is set.
        min_replicas = "1" if "min_slaves_good_slaves" in fields else "0"
    return ServerInfo(
        run_id=fields.get("run_id", ""),
        pid=_number(fields.get("process_id")),
        product="Valkey" if "valkey_version" in fields else "Redis",
        version=tuple(int(part) for part in version_text.split(".") if part.isdecimal()),
        role=fields.get("role", "master"),
        replicas=_number(fields.get("connected_slaves")),
        loading=fields.get("loading") == "1",
        maxmemory=_number(fields.get("maxmemory")),
        maxmemory_policy=fields.get("maxmemory_policy", ""),
        append_only=fields.get("aof_enabled") == "1",
        appendfsync=settings.get("appendfsync"),
        snapshots=bool(settings["save"]) if "save" in settings else None,
        min_replicas_to_write=None if min_replicas is None else _number(min_replicas),
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.lstrip("-").isdecimal() else 0


OLDEST_REDIS = (7, 0)


def check(facts: ServerInfo, where: str) -> list[str]:
    """Raise StoreRefused if Shoal's guarantees do not hold on this server, else return warnings."""
    if facts.product == "Redis" and facts.version and facts.version < OLDEST_REDIS:
        raise StoreRefused(
            f"The store at {where} runs {facts.named}, which is too old; use Redis 7.0 or newer, or Valkey."
        )
    if facts.maxmemory_policy and facts.maxmemory_policy != "noeviction":
        raise StoreRefused(
            f"The store at {where} deletes keys when its memory is full (maxmemory-policy {facts.maxmemory_policy}), "
            "which would lose URLs; set maxmemory-policy to noeviction."
        )
    if facts.replicas and facts.min_replicas_to_write == 0:
        raise StoreRefused(
            f"The store at {where} has replicas but accepts writes without them, so a failover could lose URLs; "
            "set min-replicas-to-write to 1."
        )
    warnings = []
    if not facts.append_only:
        lost = {
            True: "every URL and result since the last snapshot is",
            False: "the whole frontier is",
            None: "the frontier, or every change since its last snapshot, is",
        }[facts.snapshots]
        warnings.append(
            f"The store at {where} keeps no append-only file: {lost} lost when it restarts; set appendonly to yes."
        )
    return warnings
