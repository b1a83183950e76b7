"""`shoal doctor` on healthy stores and machines, and on each kind of unhealthy one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from shoal import Frontier
from tests.servers import cluster, free_port, server
from tests.system.shell import Result, Shell

pytestmark = pytest.mark.full

LIMITED = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {1})); "
    "from shoal.cli.main import run; run(['doctor'])"
)


def findings(result: Result) -> dict[str, str]:
    """State and text by check; a check that is there twice fails."""
    results: dict[str, str] = {}
    for line in result.out.splitlines():
        state, check, text = line.split(maxsplit=2)
        assert check not in results, result.out
        results[check] = f"{state} {text}"
    return results


@pytest.mark.smoke
def test_doctor_reports_no_problem_before_the_first_crawl_and_creates_no_store(shell: Shell) -> None:
    result = shell.run("doctor")
    assert result.code == 0, result.out
    results = findings(result)
    assert results["store"].startswith("ok none in folder .shoal yet")
    assert {"python", "curl", "certificates", "files", "disk"} <= results.keys()
    assert "fail" not in {text.split()[0] for text in results.values()}
    assert list(shell.folder.iterdir()) == []


def test_doctor_reports_no_problem_for_an_embedded_store(shell: Shell) -> None:
    async def make() -> None:
        async with await Frontier.open(folder=str(shell.folder / ".shoal"), shards=4):
            pass

    asyncio.run(make())
    result = shell.run("doctor", "--json")
    assert result.code == 0, result.out
    report = json.loads(result.out)
    assert report["ok"] is True
    checks = {check["check"]: check for check in report["checks"]}
    assert checks["shards"]["text"] == "all 4 exist"
    assert "before every reply" in checks["persistence"]["text"]
    assert {checks[name]["state"] for name in ("store", "persistence", "eviction", "memory", "schema")} == {"ok"}


@pytest.mark.smoke
def test_a_server_is_checked_and_nothing_is_written_to_it(shell: Shell, tmp_path: Path) -> None:
    with server(tmp_path / "server", options={"requirepass": "s3cret"}) as valkey:
        result = shell.run("doctor", "--store", valkey.url)
        assert result.code == 0, result.out
        assert "is new" in findings(result)["schema"]
        assert "Valkey" in findings(result)["store"]
        assert valkey.ask("DBSIZE") == 0
        assert "s3cret" not in result.out + result.err


@pytest.mark.parametrize(
    ("options", "code", "check", "says"),
    [
        ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, 1, "store", "fail"),
        ({"appendonly": "no"}, 0, "persistence", "warn"),
        ({"appendfsync": "everysec"}, 0, "persistence", "warn"),
        ({"maxmemory": "1mb", "maxmemory-policy": "noeviction"}, 1, "memory", "fail"),
    ],
)
def test_a_server_that_could_lose_writes_is_reported(
    shell: Shell, tmp_path: Path, options: dict[str, str], code: int, check: str, says: str
) -> None:
    with server(tmp_path / "server", options=options) as valkey:
        result = shell.run("doctor", "--store", valkey.url)
        assert result.code == code, result.out
        results = findings(result)
        assert results[check].startswith(says), result.out
        assert {name for name, text in results.items() if not text.startswith("ok")} == {check}


def test_an_unavailable_store_fails_the_check_without_showing_its_password(shell: Shell) -> None:
    shell.environ["SHOAL_STORE_TIMEOUT_SECONDS"] = "1"
    result = shell.run("doctor", "--store", f"redis://:s3cret@127.0.0.1:{free_port()}")
    assert result.code == 1
    assert "did not respond for 1 s" in findings(result)["store"]
    assert "s3cret" not in result.out + result.err
    assert "python" in findings(result), "the machine is looked at all the same"


def test_a_lost_shard_and_another_schema_fail_the_check(shell: Shell, tmp_path: Path) -> None:
    with server(tmp_path / "server") as valkey:

        async def make() -> list[str]:
            async with await Frontier.open(valkey.url, shards=3) as frontier:
                return [p + "meta" for p in frontier.shards.prefixes]

        metas = asyncio.run(make())
        assert shell.run("doctor", "--store", valkey.url).code == 0
        valkey.ask("DEL", metas[1])
        result = shell.run("doctor", "--store", valkey.url)
        assert result.code == 1
        assert findings(result)["shards"].startswith("fail shards 1 are missing")
        valkey.ask("HSET", "shoal{store}meta", "schema", "0")
        result = shell.run("doctor", "--store", valkey.url)
        assert result.code == 1
        assert findings(result)["schema"].startswith("fail namespace 'shoal' has schema 0")


def test_every_server_of_a_cluster_is_checked(shell: Shell, tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster") as nodes:
        nodes.nodes[2].ask("CONFIG", "SET", "appendfsync", "everysec")
        result = shell.run("doctor", "--store", nodes.url)
        assert result.code == 0, result.out
        persistence = [line.split()[0] for line in result.out.splitlines() if line.split()[1] == "persistence"]
        assert sorted(persistence) == ["ok", "warn"]


@pytest.mark.parametrize(
    ("soft", "hard", "code", "says"),
    [
        (128, 4096, 1, "fail limit of 128 open files, but a worker may need 1,264; run `ulimit -n 1264` first."),
        (1024, 4096, 0, "warn limit of 1,024 open files, but a worker may need 1,264; run `ulimit -n 1264` first."),
        (1024, 1024, 0, "warn limit of 1,024 open files, but a worker may need 1,264; raise the hard limit of 1,024"),
        (4096, 4096, 0, "ok limit of 4,096 open files"),
    ],
)  # fmt: skip
def test_a_limit_of_too_few_open_files_is_reported(shell: Shell, soft: int, hard: int, code: int, says: str) -> None:
    result = shell.start(program=("-c", LIMITED.format(soft, hard))).end()
    assert result.code == code, result.out
    assert findings(result)["files"].startswith(says)


def test_missing_certificates_fail_the_check(shell: Shell) -> None:
    shell.environ["SSL_CERT_FILE"] = "nowhere.pem"
    result = shell.run("doctor")
    assert result.code == 1
    assert findings(result)["certificates"].startswith("fail SSL_CERT_FILE is 'nowhere.pem'")
    (shell.folder / "empty.pem").touch()
    shell.environ["SSL_CERT_FILE"] = "empty.pem"
    result = shell.run("doctor")
    assert result.code == 1
    assert findings(result)["certificates"].startswith("fail empty.pem has no readable certificates")


def test_a_path_that_is_not_a_folder_fails_the_check(shell: Shell) -> None:
    (shell.folder / "file").touch()
    result = shell.run("doctor", "--folder", "file")
    assert result.code == 1
    assert findings(result)["disk"].startswith("fail")
