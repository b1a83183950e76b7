"""Requirements of a server before Shoal trusts it with URLs: each refusal is one sentence that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.errors import StoreRefused, StoreUnavailable
from shoal.frontier import Frontier, dump
from shoal.model import Limits, Visit
from shoal.store import Script, Store
from shoal.store.server_info import check, parse_facts
from tests.servers import Server, redis_server, replicated, server, tls_server

NOTE = Script("note", "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('TIME')[1]")


async def _refusal(url: str) -> str:
    with pytest.raises(StoreRefused) as caught:
        await Store.open(url, timeout_seconds=2)
    text = str(caught.value)
    assert text.count(". ") == 0
    assert text.endswith(".")
    return text


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_evicts_keys_is_refused(policy: str, tmp_path: Path) -> None:
    with server(tmp_path, options={"maxmemory-policy": policy}) as valkey:
        assert "set maxmemory-policy to noeviction" in await _refusal(valkey.url)


@pytest.mark.parametrize(
    ("options", "loss"),
    [
        ({"appendonly": "no"}, "the whole frontier is lost"),
        ({"appendonly": "no", "save": "900 1"}, "since the last snapshot is lost"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, ""),
    ],
)
async def test_missing_persistence_is_a_warning_that_names_what_would_be_lost(
    options: dict[str, str], loss: str, tmp_path: Path
) -> None:
    warnings: list[str] = []
    with server(tmp_path, options=options) as valkey:
        async with await Store.open(valkey.url, on_warning=warnings.append) as store:
            assert not store.durable
    assert [loss in warning for warning in warnings] == ([True] if loss else [])


async def test_replicas_that_writes_do_not_wait_for_are_refused(tmp_path: Path) -> None:
    with replicated(tmp_path, options={"min-replicas-to-write": "0"}) as primary:
        assert "set min-replicas-to-write to 1" in await _refusal(primary.url)
        assert "is a replica" in await _refusal(primary.peers[0].url)
        _forbid_config(primary)
        assert "set min-replicas-to-write to 1" in await _refusal(f"redis://guest:pw@127.0.0.1:{primary.port}")


async def test_a_server_that_forbids_config_is_judged_by_info_alone(own: Server) -> None:
    _forbid_config(own)
    async with await Store.open(f"redis://guest:pw@127.0.0.1:{own.port}") as store:
        assert not store.durable  # appendfsync is unknown, so the worst is assumed


def _forbid_config(valkey: Server) -> None:
    valkey.ask("ACL", "SETUSER", "guest", "on", ">pw", "~*", "&*", "+@all", "-config")


def test_redis_older_than_7_is_refused() -> None:
    old = parse_facts(b"redis_version:6.2.14\r\nrun_id:x\r\nmaxmemory_policy:noeviction\r\n", [])
    with pytest.raises(StoreRefused, match=r"Redis 6\.2\.14, which is too old"):
        check(old, "h:1")
    # Valkey names the Redis it is compatible with, too.
    new = parse_facts(b"redis_version:7.2.4\r\nvalkey_version:9.0.0\r\naof_enabled:1\r\n", [])
    assert check(new, "h:1") == []


async def test_a_wrong_or_missing_password_is_refused_at_once_and_not_printed(tmp_path: Path) -> None:
    with server(tmp_path, options={"requirepass": "right"}) as valkey:
        async with await Store.open(valkey.url) as store:
            assert await store.command("PING") == b"PONG"
        for login in ("", ":hunter2@", "nobody:hunter2@"):
            text = await _refusal(f"redis://{login}127.0.0.1:{valkey.port}")
            assert "hunter2" not in text
            assert "check user, password and rights" in text


async def test_a_password_for_a_server_without_one_is_refused(tmp_path: Path) -> None:
    with server(tmp_path, binary=redis_server()) as redis:
        assert "without any password" in await _refusal(f"redis://:hunter2@127.0.0.1:{redis.port}")


async def test_the_documented_rights_are_enough_and_less_is_refused(own: Server) -> None:
    page = (Path(__file__).parents[2] / "docs/operations/store.md").read_text()
    (rule,) = [line for line in page.splitlines() if line.startswith("ACL SETUSER shoal ")]
    own.ask(*rule.replace("PASSWORD", "pw").split())
    url = f"redis://shoal:pw@127.0.0.1:{own.port}"
    async with await Store.open(url) as store:
        assert store.durable
        await store.call(NOTE, "shoal{1}k", [1], replicated=True)
        with pytest.raises(StoreRefused):
            await store.command("FLUSHALL")
        with pytest.raises(StoreRefused):
            await store.call(NOTE, "other", [1])
    async with await Frontier.open(url) as frontier:
        await frontier.crawls.create("c", Limits(delay_seconds=0, max_pages=2))
        await frontier.add("c", ["http://a.example/1", Visit(url="http://a.example/2", priority=3)])
        while not await frontier.crawls.finished("c"):
            for lease in await frontier.lease(wait_seconds=1):
                await frontier.renew([lease])
                await frontier.acknowledge(lease, [visit.stored() for visit in lease.visits])
        await frontier.hosts.block("a.example")
        assert [line async for line in dump(frontier.shards)]
        await frontier.crawls.finish("c")
        await frontier.crawls.delete("c")
    own.ask("ACL", "SETUSER", "shoal", "-set")
    async with await Store.open(url) as store:
        with pytest.raises(StoreRefused, match="script note"):
            await store.call(NOTE, "shoal{1}k", [1])


async def test_tls_is_used_and_an_unknown_certificate_is_refused(tmp_path: Path) -> None:
    with tls_server(tmp_path) as (redis, authority):
        url = f"rediss://localhost:{redis.port}"
        async with await Store.open(f"{url}?ssl_ca_certs={authority}") as store:
            assert await store.call(NOTE, "k", [b"x" * 1_000_000])
        async with await Store.open(f"{url}?ssl_cert_reqs=none") as store:
            assert await store.command("PING") == b"PONG"
        assert "ssl_ca_certs" in await _refusal(url)
        assert "ssl_ca_certs" in await _refusal(f"rediss://127.0.0.1:{redis.port}?ssl_ca_certs={authority}")


async def test_tls_to_a_port_without_tls_is_reported_as_the_reason(valkey: Server) -> None:
    # A Redis server treats the handshake as the start of a command and waits for the rest, so only a timeout ends it.
    with pytest.raises(StoreUnavailable, match="no TLS handshake within"):
        await Store.open(f"rediss://127.0.0.1:{valkey.port}", timeout_seconds=0.5)


async def test_a_cluster_url_for_a_plain_server_is_refused(valkey: Server) -> None:
    assert "is not a cluster" in await _refusal(f"redis+cluster://127.0.0.1:{valkey.port}")
