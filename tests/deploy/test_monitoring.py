"""The dashboard's queries and the alert rules in a real Prometheus, which scrapes a real fleet through a token."""

from __future__ import annotations

import hashlib
import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.process import serve_api
from tests.deploy.helm import ROOT
from tests.servers import Server, free_port, program, wait_until
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell
from tools.dashboard import dashboard

pytestmark = pytest.mark.full
MONITORING = ROOT / "deploy/monitoring"
# Nothing fails or is paused in this crawl, and no lease is lost.
EMPTY = {"shoal_failed_total", "shoal_excluded_total"}


def test_prometheus_answers_every_query_of_the_dashboard(
    site: Site, store: Server, shell: Shell, tmp_path: Path
) -> None:
    prometheus = program("prometheus", "apt-get install prometheus")
    hosts = site.take(2)
    tree = site.plant(2000, hosts)
    token = "shoal_secret"
    settings = f'[tokens]\nmetrics = "read sha256:{hashlib.sha256(token.encode()).hexdigest()}"\n'
    (tmp_path / "token").write_text(token)
    shell.environ["SHOAL_OUTPUTS_RESULTS"] = f"{store.url}/0/results"
    worker = shell.start("worker", "--store", store.url, *LOCAL, "--workers", "1")
    worker.wait_for_output("1 worker on")
    result = shell.run(
        "submit", "--store", store.url, "--scope", "any", "--delay", "0.2", "--out", "results", tree.url(0)
    )
    assert result.code == 0, result.err
    with serve_api(tmp_path / "api", "--store", store.url, settings=settings, token=token) as api:
        # The configuration of deploy/, with this API and paths of this test.
        config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(MONITORING / "alerts.yaml")]
        (scrape,) = config["scrape_configs"]
        scrape["authorization"]["credentials_file"] = str(tmp_path / "token")
        scrape["static_configs"] = [{"targets": [f"{api.host}:{api.port}"]}]
        (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
        port = free_port()
        with (tmp_path / "prometheus.log").open("wb") as log:
            process = subprocess.Popen(
                [prometheus, f"--config.file={tmp_path}/prometheus.yaml", f"--storage.tsdb.path={tmp_path}/data",
                 f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log,
            )  # fmt: skip
        try:

            def query(expression: str) -> list[Any]:
                url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
                try:
                    with urllib.request.urlopen(url, timeout=10) as response:
                        result = json.load(response)
                except urllib.error.HTTPError as error:
                    # While it starts.
                    if error.code == 503:
                        return []
                    raise AssertionError(f"{expression}: {error.read()!r}") from None
                except OSError:
                    return []
                assert result["status"] == "success"
                return list(result["data"]["result"])

            def rises() -> bool:
                rate = query("rate(shoal_pages_total[5m])")
                return bool(rate) and float(rate[0]["value"][1]) > 0

            wait_until(rises, "pages are counted")
            assert query('up{job="shoal"}')[0]["value"][1] == "1"
            for panel in dashboard()["panels"]:
                for target in panel["targets"]:
                    series = query(target["expr"])
                    if not any(name in target["expr"] for name in EMPTY):
                        assert series, target["expr"]
            assert len(_rules(port)) == 8
            wait_until(lambda: all(rule["health"] == "ok" for rule in _rules(port)), "every rule was evaluated")
        finally:
            process.terminate()
            process.wait()


def _rules(port: int) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/rules", timeout=10) as response:
        (group,) = json.load(response)["data"]["groups"]
    return list(group["rules"])
