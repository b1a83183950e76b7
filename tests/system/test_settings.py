"""Settings reach what they are for: each of these has an effect that can be seen."""

from __future__ import annotations

from pathlib import Path

from shoal import Frontier, Limits, State
from shoal.frontier import mono
from shoal.settings import load


async def test_every_setting_reaches_the_frontier(tmp_path: Path) -> None:
    file = tmp_path / "shoal.toml"
    file.write_text(
        f"""
        [store]
        folder = "{tmp_path / "here"}"
        namespace = "mine"
        shards = 3
        maxmemory = "64mb"
        [frontier]
        lease_seconds = 30
        batch_seconds = 4
        expiries = 1
        host_failures = 2
        """
    )
    settings = load(file=file, environ={"SHOAL_FRONTIER_BLAMES": "1"}).settings
    async with await Frontier.from_settings(settings, worker="ann") as frontier:
        assert (tmp_path / "here" / "store").is_dir()
        assert frontier.shards.namespace == "mine"
        assert frontier.shards.count == 3
        info = (await frontier.shards.store.command("INFO", "memory")).decode()
        assert "maxmemory:67108864" in info
        await frontier.crawls.create("c", Limits(delay_seconds=1))
        await frontier.add("c", [f"http://{host}.example/{n}" for host in "ab" for n in range(9)])
        leases = await frontier.lease()
        # Four seconds of visits, one a second; trusted for 30 s less what it takes to abort.
        assert [len(lease.visits) for lease in leases] == [4, 4]
        assert all(20 < lease.trusted_until_mono - mono() < 30 for lease in leases)
        await frontier.reap("ann", token=leases[0].token, number=1)
        counts = await frontier.crawls.count("c")
        assert counts.reasons == {"failed:poison": 1, "failed:lease expired": 7}
        host = leases[0].host
        assert not await frontier.hosts.postpone(host, 1, failed=True)
        assert await frontier.hosts.postpone(host, 1, failed=True)
    # Whoever joins later with another number of shards gets those that are there.
    other = load(file=file, environ={"SHOAL_STORE_SHARDS": "8"}).settings
    async with await Frontier.from_settings(other) as joined:
        assert joined.shards.count == 3
        assert (await joined.crawls.get("c")).state is State.RUNNING
