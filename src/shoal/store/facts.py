"""What a server says of itself when a connection is made: parsed INFO and, where allowed, CONFIG GET."""

from __future__ import annotations

from typing import Any

import msgspec


class Facts(msgspec.Struct, frozen=True):
    """None means that the server does not tell (CONFIG is forbidden on many managed servers)."""

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
        """A restart loses nothing: every answered write is on the disk, and no failover can take another copy."""
        return self.append_only and self.appendfsync == "always" and not self.replicas

    @property
    def named(self) -> str:
        return f"{self.product} {'.'.join(map(str, self.version))}"


def parse_facts(info: Any, config: Any) -> Facts:
    """Build the facts from the replies to INFO and CONFIG GET (which may be an error)."""
    fields: dict[str, str] = {}
    if isinstance(info, bytes):
        for line in info.decode("utf-8", "replace").splitlines():
            name, colon, value = line.partition(":")
            if colon:
                fields[name] = value
    told: dict[str, str] = {}
    if isinstance(config, list):
        texts = [item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in config]
        told = dict(zip(texts[::2], texts[1::2], strict=False))
    version_text = fields.get("valkey_version") or fields.get("redis_version", "")
    min_replicas = told.get("min-replicas-to-write")
    if min_replicas is None and fields and "connected_slaves" in fields:
        # INFO counts good replicas exactly when min-replicas-to-write is set.
        min_replicas = "1" if "min_slaves_good_slaves" in fields else "0"
    return Facts(
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
        appendfsync=told.get("appendfsync"),
        snapshots=bool(told["save"]) if "save" in told else None,
        min_replicas_to_write=None if min_replicas is None else _number(min_replicas),
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.lstrip("-").isdecimal() else 0
