"""A separate Debian machine for tests: own files, processes, ports and cgroups, and no access to any network.

It is a set of namespaces on this machine. Its process 1 is the program it is started with, and its end is the end of
every process in it. Docker's containers in it get addresses of bridges that exist in it only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.deploy.engine import system
from tests.servers import program, wait_until

T = TypeVar("T")
# Addresses for tests of network devices (RFC 2544), on a device of the machine: the web sites that its containers see.
SITES = "198.18.0.0/24"
# What this machine has in its environment, e.g. TMPDIR, is not there.
_ENVIRON = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
_CLONE_NEWNET = 0x40000000
# The root of the machine is a folder: it becomes a mount, gets what a kernel offers, and replaces the root.
_BOOT = """
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount -t sysfs sysfs "$1/sys"
if [ "$container" ]; then
    # A namespace of cgroups, of which the machine sees its own only: systemd takes what it sees as its own.
    mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
    mount -o remount,bind,ro "$1/sys"
    mount --bind "$1/proc/sys" "$1/proc/sys"
    mount -o remount,bind,ro "$1/proc/sys"
else
    mount --rbind /sys/fs/cgroup "$1/sys/fs/cgroup"
fi
mount -t tmpfs tmpfs "$1/dev"
for device in null zero full random urandom tty; do cp -a "/dev/$device" "$1/dev/"; done
mkdir "$1/dev/pts" "$1/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts"
ln -s pts/ptmx "$1/dev/ptmx"
ln -s /proc/self/fd "$1/dev/fd"
mount -t tmpfs tmpfs "$1/run"
mount -t tmpfs tmpfs "$1/tmp"
mkdir -p "$1/test"
mount --bind "$2" "$1/test"
ip link set lo up
ip link add sites type bridge
ip link set sites up
for number in 1 2 3 4 5 6 7 8; do ip address add "198.18.0.$number/24" dev sites; done
cd "$1"
mkdir -p old
pivot_root . old
shift 2
exec chroot . sh -c 'umount --lazy /old; exec "$@"' init "$@"
"""


@dataclass
class Machine:
    """A running machine. `shared` is the folder of this machine that it has as /test."""

    root: Path
    shared: Path
    process: subprocess.Popen[bytes]
    log: Path
    # Process 1 of the machine, as this machine counts.
    pid: int

    def run(
        self, *argv: object, check: bool = True, folder: str = "/", environ: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        enter = ("nsenter", "-t", self.pid, "-m", "-n", "-p", "-u", "-i", "-C", "-r", f"--wdns={folder}")
        result = subprocess.run(
            [*map(str, (*enter, *argv))], capture_output=True, text=True, timeout=300,
            env={**_ENVIRON, **(environ or {})},
        )  # fmt: skip
        assert not check or result.returncode == 0, f"{argv}: {result.stdout[-3000:]}{result.stderr[-3000:]}"
        return result

    def inspect(self, container: str) -> dict[str, Any]:
        (details,) = json.loads(self.run("docker", "inspect", container).stdout)
        return dict(details)

    def network(self, act: Callable[[], T]) -> T:
        """Call it in the network of the machine; sockets that it opens belong there for good."""
        outcome: list[T] = []

        def enter() -> None:
            with Path(f"/proc/{self.pid}/ns/net").open("rb") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            outcome.append(act())

        # A thread may be in another network than its process.
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        assert outcome, "the thread failed; its error is above"
        return outcome[0]

    def outside(self, *argv: object, check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a program of this machine in the network of the other."""
        result = subprocess.run(
            ["nsenter", f"--net=/proc/{self.pid}/ns/net", *map(str, argv)], capture_output=True, text=True, timeout=120,
            env={**os.environ, **environ},
        )  # fmt: skip
        assert not check or result.returncode == 0, f"{argv}: {result.stdout[-3000:]}{result.stderr[-3000:]}"
        return result


@contextlib.contextmanager
def machine(shared: Path, init: Sequence[str], *, own_cgroups: bool = False) -> Iterator[Machine]:
    """Start a machine whose first process is `init`.

    `own_cgroups`: it sees a cgroup of its own as the root, and may not change the kernel's settings, as a container.
    """
    if os.geteuid() != 0:
        pytest.skip("namespaces are made by root; run: sudo make deploy-test")
    for name, package in (("unshare", "util-linux"), ("ip", "iproute2"), ("debootstrap", "debootstrap")):
        program(name, f"apt-get install {package}")
    archive = system("machine")
    # Not below pytest's folder: overlays need a real file system, and paths of sockets in it would be too long.
    folder = Path(tempfile.mkdtemp(prefix="shoal-machine-", dir="/var/tmp"))
    root, log = folder / "root", folder / "log"
    root.mkdir()
    subprocess.run(["tar", "-C", root, "-xpf", archive], check=True)
    unshare = ["unshare", "-m", "-n", "-p", "-u", "-i", "--fork", "--kill-child"]
    boot = ["sh", "-ec", _BOOT, "boot", str(root), str(shared), *init]
    group = _cgroup2() / f"shoal-{os.getpid()}"
    if own_cgroups:
        group.mkdir()
        unshare = ["sh", "-ec", 'echo $$ >"$0/cgroup.procs"; exec "$@"', str(group), *unshare, "-C"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*unshare, *boot], stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            env={**_ENVIRON, "container": "shoal-test" if own_cgroups else ""},
        )  # fmt: skip
    try:
        yield Machine(
            root, shared, process, log, wait_until(lambda: _booted(process, log, init[0]), "the machine boots")
        )
    finally:
        # --kill-child: the machine's first process ends with this one, and every other with it.
        process.kill()
        process.wait()
        wait_until(lambda: not _mounted(folder), "the machine's mounts are gone")
        # Its processes end one after the other, and their cgroups with them.
        wait_until(lambda: remove_cgroup(group), "the machine's cgroup is gone")
        shutil.rmtree(folder, ignore_errors=True)


def _cgroup2() -> Path:
    """Where cgroups of version 2 are: beside those of version 1, or alone."""
    beside = Path("/sys/fs/cgroup/unified")
    return beside if beside.exists() else Path("/sys/fs/cgroup")


def remove_cgroup(group: Path) -> bool:
    """Remove a cgroup whose processes have ended, with those in it. Returns whether it is gone."""
    for folder in (*sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True), group):
        with contextlib.suppress(OSError):
            folder.rmdir()
    return not group.exists()


def _booted(process: subprocess.Popen[bytes], log: Path, init: str) -> int:
    """The process id of `init`, once it has replaced the script that boots; until then 0."""
    assert process.poll() is None, log.read_text()[-3000:]
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        if children and Path(f"/proc/{children[0]}/cmdline").read_bytes().split(b"\0")[0].decode() == init:
            return int(children[0])
    return 0


def _mounted(folder: Path) -> bool:
    return any(str(folder) in line for line in Path("/proc/self/mounts").read_text().splitlines())


@contextlib.contextmanager
def docker(shared: Path) -> Iterator[Machine]:
    """A machine with a Docker engine and Compose."""
    group = f"shoal-{os.getpid()}"
    init = ("dockerd", "--storage-driver", "overlay2", "--cgroup-parent", f"/{group}", "--exec-opt",
            "native.cgroupdriver=cgroupfs")  # fmt: skip
    try:
        with machine(shared, init) as made:

            def is_up() -> bool:
                assert made.process.poll() is None, made.log.read_text()[-3000:]
                return made.run("docker", "info", check=False).returncode == 0

            wait_until(is_up, "Docker answers")
            yield made
    finally:
        for left in Path("/sys/fs/cgroup").glob(f"*/{group}"):
            remove_cgroup(left)
        remove_cgroup(Path("/sys/fs/cgroup") / group)
