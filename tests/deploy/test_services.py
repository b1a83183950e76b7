"""Service units, Compose files, alert rules and the dashboard, checked by the programs that read them."""

from __future__ import annotations

import configparser
import hashlib
import json
import os
import plistlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.deploy.helm import ROOT, missing
from tests.servers import program

pytestmark = pytest.mark.full
DEPLOY = ROOT / "deploy"


def run(*args: object, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, args)], capture_output=True, text=True, timeout=120, **more)  # type: ignore[call-overload]


def tool(name: str) -> str:
    """A program of the deploy lock, which is beside Python or on PATH."""
    path = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    return path or str(missing(name))


@pytest.mark.parametrize("unit", ["shoal-worker@.service", "shoal-serve.service"])
def test_systemd_accepts_the_units_and_rates_their_exposure_low(unit: str, tmp_path: Path) -> None:
    analyze = program("systemd-analyze", "apt-get install systemd")
    # An instance, and a program that exists.
    copy = tmp_path / unit.replace("@", "@1")
    copy.write_text((DEPLOY / "systemd" / unit).read_text().replace("/opt/shoal/bin/shoal", "/bin/true"))
    verified = run(analyze, "verify", "--man=no", copy)
    problems = [line for line in verified.stderr.splitlines() if copy.name in line or str(copy) in line]
    assert problems == [], verified.stderr
    security = run(analyze, "security", "--offline=true", "--no-pager", copy)
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", security.stdout)
    assert level is not None, security.stdout + security.stderr
    assert float(level[1]) <= 2.0, security.stdout


def test_the_units_leave_more_time_than_the_program_needs() -> None:
    worker = (DEPLOY / "systemd/shoal-worker@.service").read_text()
    assert "\nType=notify\n" in worker
    # worker.grace_seconds is 10, and a stuck worker is reported after twice worker.parse_seconds (30).
    assert int(re.search(r"TimeoutStopSec=(\d+)", worker)[1]) >= 30  # type: ignore[index]
    assert int(re.search(r"WatchdogSec=(\d+)", worker)[1]) >= 60  # type: ignore[index]


def test_the_files_for_supervisord_and_launchd_are_well_formed() -> None:
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";",))
    parser.read(DEPLOY / "supervisord/shoal.conf")
    assert parser["program:shoal-worker"]["stopsignal"] == "TERM"
    with (DEPLOY / "launchd/shoal.worker.plist").open("rb") as file:
        agent = plistlib.load(file)
    assert agent["ProgramArguments"][1:] == ["worker"]


COMPOSE = [*DEPLOY.glob("compose/compose*.yaml"), *ROOT.glob("examples/*/compose*.yaml")]


@pytest.mark.parametrize("name", sorted(str(path.relative_to(ROOT)) for path in COMPOSE))
def test_compose_files_match_the_schema_of_compose(name: str) -> None:
    result = run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", ROOT / name)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_secret_and_file_of_the_compose_file_exists_after_setup(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns("secrets"))
    folder = tmp_path / "deploy/compose"
    assert run(folder / "setup").returncode == 0
    before = {path.name: path.read_bytes() for path in (folder / "secrets").iterdir()}
    assert (folder / "secrets").stat().st_mode & 0o777 == 0o700
    assert run(folder / "setup").returncode == 0
    assert before == {path.name: path.read_bytes() for path in (folder / "secrets").iterdir()}, "secrets stay"
    compose = yaml.safe_load((folder / "compose.yaml").read_text())
    for secret in compose["secrets"].values():
        assert (folder / secret["file"]).read_text().strip()
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (folder / source).exists(), source
        assert set(service.get("secrets", [])) <= compose["secrets"].keys()
    # The API accepts the token that setup has made.
    line = (folder / "secrets/token_admin_line").read_text().strip()
    token = (folder / "secrets/token_admin").read_text().strip()
    assert line == f"admin sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def test_real_compose_accepts_the_compose_file(tmp_path: Path) -> None:
    compose = run("docker", "compose", "version") if shutil.which("docker") else None
    if compose is None or compose.returncode:
        # Not in every Debian, so not required by CI.
        pytest.skip("Docker Compose v2 is not installed; run: apt-get install docker-compose (Debian 13)")
    shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns("secrets"))
    folder = tmp_path / "deploy/compose"
    assert run(folder / "setup").returncode == 0
    result = run("docker", "compose", "--profile", "monitoring", "config", "--quiet", cwd=folder)
    assert result.returncode == 0, result.stderr


def test_the_alert_rules_fire_when_they_should_and_only_then() -> None:
    promtool = program("promtool", "apt-get install prometheus")
    result = run(promtool, "test", "rules", DEPLOY / "monitoring/alerts.test.yaml")
    assert result.returncode == 0, result.stdout + result.stderr
    tested = (DEPLOY / "monitoring/alerts.test.yaml").read_text()
    rules = yaml.safe_load((DEPLOY / "monitoring/alerts.yaml").read_text())["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules if f"alertname: {rule['alert']}" not in tested] == []


def test_alerts_and_dashboard_use_metrics_that_exist() -> None:
    from tools.dashboard import PANELS, dashboard, metric_names

    names = {name for name, _ in metric_names()}
    alerts = (DEPLOY / "monitoring/alerts.yaml").read_text()
    queries = " ".join(query for _, _, pairs in PANELS for query, _ in pairs)
    assert set(re.findall(r"\bshoal_[a-z_]+", f"{alerts} {queries}")) <= names
    shown = json.dumps(dashboard())
    assert {name for name in names if name not in shown} == {"redis_queue_length"}
    assert json.loads((DEPLOY / "monitoring/dashboards/shoal.json").read_text()) == dashboard(), "run: make docs"


def test_hadolint_finds_no_problem_in_the_dockerfile() -> None:
    result = run(tool("hadolint"), ROOT / "Dockerfile")
    assert (result.returncode, result.stdout) == (0, ""), result.stdout
