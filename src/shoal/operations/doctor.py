"""Check whether a crawl can run on the store and this machine, and change neither.

Each check has one finding. With `fail` a crawl cannot run, with `warn` it can; both say what to do.
"""

from __future__ import annotations

import os
import resource
import shutil
import ssl
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from shoal.errors import SettingsError, ShoalError
from shoal.frontier.inspect import NamespaceMeta, namespace_meta
from shoal.frontier.scripts import SCHEMA
from shoal.settings import Settings
from shoal.store import Store
from shoal.store.embedded import check_server, find_server
from shoal.store.server_info import ServerInfo, check, parse_facts

OK, WARN, FAIL = "ok", "warn", "fail"
# A person waits for the result: a store that does not respond for longer counts as unavailable.
TIMEOUT_SECONDS = 10.0
# Files that a worker process has open besides its connections: libraries, outputs, the store.
_OTHER_FILES = 64
_DISK_WARN_BYTES, _DISK_FAIL_BYTES = 1_000_000_000, 100_000_000
_MEMORY_WARN, _MEMORY_FAIL = 0.8, 0.95
_PYTHONS = ((3, 11), (3, 15))
# This libcurl introduced PREREQFUNCTION, which checks an address before a request.
_OLDEST_LIBCURL = (7, 80)
# Bits of curl_version_info. Without a required feature no page can be fetched; without an optional one it takes longer.
_REQUIRED = {"TLS": 1 << 2}
_OPTIONAL = {"gzip": 1 << 3, "HTTP/2": 1 << 16, "brotli": 1 << 23}


class Finding(msgspec.Struct, frozen=True):
    check: str
    state: str
    text: str


def by_share(check: str, share: float, text: str, advice: str) -> Finding:
    state = FAIL if share >= _MEMORY_FAIL else WARN if share >= _MEMORY_WARN else OK
    return Finding(check, state, text if state == OK else f"{text}; {advice}.")


# The store


async def examine_store(settings: Settings) -> list[Finding]:
    """Check the store. A store or namespace that does not exist is not created."""
    where = settings.store
    if not where.url and not (Path(where.folder) / "store").is_dir():
        return [_missing_store(settings)]
    try:
        async with await Store.open(
            where.url, folder=where.folder, server=where.server, maxmemory=where.maxmemory,
            timeout_seconds=min(where.timeout_seconds, TIMEOUT_SECONDS),
        ) as store:  # fmt: skip
            return await _examine(store, where.namespace)
    except ShoalError as error:
        return [Finding("store", FAIL, str(error))]


def _missing_store(settings: Settings) -> Finding:
    try:
        server = find_server(settings.store.server)
        check_server(server)
    except ShoalError as error:
        return Finding("store", FAIL, str(error))
    return Finding("store", OK, f"none in folder {settings.store.folder} yet; a crawl starts one with {server}")


async def _examine(store: Store, namespace: str) -> list[Finding]:
    meta = await namespace_meta(store, namespace)
    servers = await _servers(store, list(meta.shards))
    names = ", ".join(sorted({facts.named for facts, _ in servers}))
    findings = [Finding("store", OK, f"{store.shown} responds: {names}")]
    for facts, info in servers:
        findings += [_persistence(facts, store.shown), _eviction(facts), _memory(facts, info)]
    findings += _schema(namespace, meta)
    return list(dict.fromkeys(findings))


async def _servers(store: Store, keys: list[str]) -> list[tuple[ServerInfo, bytes]]:
    """Every server that holds one of the keys, with its reply to INFO."""
    servers: dict[str, tuple[ServerInfo, bytes]] = {}
    for key in keys:
        if store.run_id(key) in servers:
            continue
        info = await store.command("INFO", key=key)
        try:
            config = await store.command("CONFIG", "GET", "*", key=key)
        except ShoalError:
            # Forbidden on many managed servers.
            config = None
        facts = parse_facts(info, config)
        servers[facts.run_id] = (facts, info)
    return list(servers.values())


def _persistence(facts: ServerInfo, where: str) -> Finding:
    for warning in check(facts, where):
        return Finding("persistence", WARN, warning)
    if facts.appendfsync is None:
        return Finding("persistence", OK, "append-only file; the server does not report appendfsync")
    if facts.appendfsync == "always":
        return Finding("persistence", OK, "append-only file, synced to disk before every reply")
    lost = {"everysec": "the last second"}.get(facts.appendfsync, "the writes that the system had not synced yet")
    return Finding(
        "persistence", WARN,
        f"append-only file with appendfsync {facts.appendfsync}: a crash of its machine loses {lost}. These "
        "pages are then fetched again; to prevent it, set appendfsync to always.",
    )  # fmt: skip


def _eviction(facts: ServerInfo) -> Finding:
    # Any other policy was refused when the store was opened.
    if facts.maxmemory_policy:
        return Finding("eviction", OK, f"maxmemory-policy {facts.maxmemory_policy}")
    return Finding("eviction", WARN, "the server does not report maxmemory-policy; make sure that it is noeviction.")


def _memory(facts: ServerInfo, info: bytes) -> Finding:
    fields = dict(line.split(":", 1) for line in info.decode("utf-8", "replace").splitlines() if ":" in line)
    used = int(fields.get("used_memory", 0))
    capacity = facts.maxmemory or int(fields.get("total_system_memory", 0))
    if not capacity:
        return Finding("memory", OK, f"{used / 1e6:,.1f} MB used")
    of = "its maxmemory of" if facts.maxmemory else "its machine's"
    return by_share(
        "memory",
        used / capacity,
        f"{used / 1e6:,.1f} MB used of {of} {capacity / 1e6:,.0f} MB",
        f"{'raise maxmemory' if facts.maxmemory else 'add memory'} before it is full",
    )


def _schema(namespace: str, found_meta: NamespaceMeta) -> list[Finding]:
    meta = found_meta.store
    if not meta:
        return [Finding("schema", OK, f"namespace {namespace!r} is new")]
    if meta.get("schema") != SCHEMA:
        return [
            Finding(
                "schema", FAIL,
                f"namespace {namespace!r} has schema {meta.get('schema')}, this version of Shoal uses {SCHEMA}; "
                "use the version that created it, or dump it there and load it here.",
            )
        ]  # fmt: skip
    findings = [Finding("schema", OK, f"namespace {namespace!r} has schema {SCHEMA}")]
    shards = list(found_meta.shards.values())
    lost = [str(number) for number, shard in enumerate(shards) if not shard]
    other = [str(number) for number, shard in enumerate(shards) if shard and shard.get("schema") != SCHEMA]
    if lost and not meta.get("complete"):
        text = f"{len(lost)} of {len(shards)} do not exist yet; the next worker creates them."
        findings.append(Finding("shards", WARN, text))
    elif lost:
        text = f"shards {', '.join(lost)} are missing from the store; restore it from a dump."
        findings.append(Finding("shards", FAIL, text))
    elif other:
        text = f"shards {', '.join(other)} have another schema; stop the other version of Shoal."
        findings.append(Finding("shards", FAIL, text))
    else:
        findings.append(Finding("shards", OK, f"all {len(shards)} exist"))
    return findings


# This machine


def examine_machine(settings: Settings) -> Iterator[Finding]:
    yield _python()
    yield _curl()
    yield _certificates()
    yield _files(settings)
    yield _disk(Path(settings.store.folder) if not settings.store.url else Path())


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if _PYTHONS[0] <= sys.version_info[:2] < _PYTHONS[1]:
        return Finding("python", OK, version)
    return Finding("python", WARN, f"Shoal is not tested with {version}; use 3.11 to 3.14.")


def _curl() -> Finding:
    try:
        # Not an import statement: a failed import is one of the findings.
        curl: Any = import_module("pycurl")
    except ImportError as error:
        return Finding("curl", FAIL, f"pycurl cannot be imported ({error}); reinstall it.")
    version, bits = curl.version_info()[1], curl.version_info()[4]
    libcurl = f"libcurl {version}, {curl.version_info()[5]}"
    if tuple(int(part) for part in version.split("-")[0].split(".")[:2]) < _OLDEST_LIBCURL:
        return Finding("curl", FAIL, f"{libcurl} is too old; install a pycurl with libcurl 7.80 or newer.")
    lacks = [name for name, bit in _REQUIRED.items() if not bits & bit]
    if lacks or not hasattr(curl, "AsyncCurlMulti"):
        return Finding(
            "curl", FAIL, f"{libcurl} lacks {', '.join(lacks) or 'asyncio'}; reinstall pycurl from its wheel."
        )
    if lacks := [name for name, bit in _OPTIONAL.items() if not bits & bit]:
        return Finding("curl", WARN, f"{libcurl} lacks {', '.join(lacks)}; pycurl's wheel from PyPI has it.")
    return Finding("curl", OK, f"{libcurl}, {', '.join(_OPTIONAL)}")


def _certificates() -> Finding:
    try:
        from shoal.fetch.tls import authorities

        file, folder = authorities()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(file or None, folder or None)
    except ImportError:
        return Finding("certificates", WARN, "cannot be checked without pycurl.")
    except SettingsError as error:
        return Finding("certificates", FAIL, str(error))
    except (ssl.SSLError, OSError) as error:
        return Finding("certificates", FAIL, f"{file or folder} has no readable certificates ({error}); use another.")
    # Certificates in a folder are loaded on demand, so they cannot be counted.
    count = f", {len(context.get_ca_certs())} authorities" if file else ""
    return Finding("certificates", OK, f"{file or folder}{count}")


def _files(settings: Settings) -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return Finding("files", OK, "no limit on open files")
    least = settings.worker.hosts + _OTHER_FILES
    needed = least + settings.fetch.connections
    limit = f"limit of {soft:,} open files"
    if soft >= needed:
        return Finding("files", OK, limit)
    how = f"run `ulimit -n {needed}` first"
    if hard != resource.RLIM_INFINITY and hard < needed:
        how = f"raise the hard limit of {hard:,}, or lower fetch.connections and worker.hosts"
    return Finding("files", FAIL if soft < least else WARN, f"{limit}, but a worker may need {needed:,}; {how}.")


def _disk(folder: Path) -> Finding:
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Finding("disk", FAIL, f"{existing} is not writable; choose another folder.")
    try:
        free = shutil.disk_usage(existing).free
    except OSError as error:
        return Finding("disk", WARN, f"the free space in {existing} is unknown ({error.strerror}).")
    state = FAIL if free < _DISK_FAIL_BYTES else WARN if free < _DISK_WARN_BYTES else OK
    room = f"{free / 1e9:,.1f} GB free in {existing}"
    return Finding("disk", state, room if state == OK else f"{room}; free some space before a crawl fills it.")
