"""An unavailable forward proxy is not a failure of the sites."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fetch.programs import tinyproxy
from tests.servers import free_port
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell


@pytest.mark.full
def test_a_crawl_waits_for_an_unavailable_proxy_and_no_host_is_blamed(site: Site, shell: Shell, tmp_path: Path) -> None:
    (host,) = site.take()
    tree = site.plant(5, [host])
    port = free_port()
    crawl = shell.start(
        "crawl", tree.url(0), *LOCAL, "--proxy", f"http://127.0.0.1:{port}", "--name", "p", "--delay", "0"
    )
    crawl.wait_for_output("The proxy is unavailable (proxy refused). Retrying.")
    assert site.requests(host) == []
    fields = dict(line.rsplit(None, 1) for line in shell.run("hosts", host).out.splitlines())
    assert (fields["failures"], fields["backoff until"]) == ("0", "-")
    with tinyproxy(tmp_path / "proxy", port=port):
        result = crawl.end()
    assert result.code == 0, result.err
    assert set(shell.rows()) == set(tree.walk())
