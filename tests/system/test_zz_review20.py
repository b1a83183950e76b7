from __future__ import annotations
import os, signal, time
from pathlib import Path
import pytest
from tests.site.answers import page
from tests.site.site import Site
from tests.system.commanding import Shell

LOCAL = {"fetch.allow_networks": "127.0.0.0/8"}
PROGRAMS = {
 "leave": "it = iter(shoal.crawl({url!r}, delay_seconds=0.05, settings=S))\nprint(next(it).url)\n",
 "exit": "import sys\nfor r in shoal.crawl({url!r}, delay_seconds=0.05, settings=S):\n    print(r.url)\n    sys.exit(3)\n",
 "raise": "for r in shoal.crawl({url!r}, delay_seconds=0.05, settings=S):\n    print(r.url)\n    raise KeyError(1)\n",
 "never": "x = shoal.crawl({url!r}, delay_seconds=0.05, settings=S)\n",
 "asyncio": "import asyncio\nasync def main():\n    async for r in shoal.crawl({url!r}, delay_seconds=0.05, settings=S):\n        print(r.url)\n        break\nasyncio.run(main())\n",
 "asyncleft": "import asyncio\nasync def main():\n    global it\n    it = aiter(shoal.crawl({url!r}, delay_seconds=0.05, settings=S))\n    print((await anext(it)).url)\nasyncio.run(main())\n",
 "thread": "import threading\nit = iter(shoal.crawl({url!r}, delay_seconds=0.05, settings=S))\nprint(next(it).url)\nt = threading.Thread(target=it.close)\nt.start(); t.join()\n",
 "fork": "import os\nfor r in shoal.crawl({url!r}, delay_seconds=0.05, settings=S):\n    print(r.url, flush=True)\n    pid = os.fork()\n    if pid == 0:\n        import sys; sys.exit(0)\n    print(os.waitpid(pid, 0)); break\n",
 "missing": "class A(shoal.Spider):\n    def parse(self, page):\n        yield {{'u': page.url}}\n        yield from page.follow('a', spider='B')\nc = shoal.crawl({url!r}, spider=A, delay_seconds=0, settings=S)\nprint(list(c)); print(c.counts)\n",
 "two": "a = iter(shoal.crawl({url!r}, delay_seconds=0.01, settings=S, folder='kept', name='a'))\nb = iter(shoal.crawl({url!r}, delay_seconds=0.01, settings=S, folder='kept', name='b'))\nfirst = [next(a).url, next(b).url]\na.close()\nprint(1 + len(list(b)))\n",
}

@pytest.mark.parametrize("how", PROGRAMS)
def test_program(site: Site, tmp_path: Path, how: str) -> None:
    (host,) = site.take()
    tree = site.plant(40, [host])
    (tmp_path / "p.py").write_text(f"import shoal\nS = {LOCAL}\n" + PROGRAMS[how].format(url=tree.url(0)))
    shell = Shell(tmp_path, environ={"TMPDIR": str(tmp_path)})
    began = time.time()
    r = shell.start(program=("p.py",))
    try:
        try:
            ran = r.end(seconds=15)
        except Exception as e:
            print("HUNG", e, "".join(r.said)); raise
        except AssertionError as e:
            print("TRACE", e); raise
    finally:
        print("TIME", time.time() - began, os.listdir(tmp_path), r.process.poll())
        shell.close()
    print(ran)
