"""A container engine for tests: buildah builds on a base made by debootstrap, podman runs with runc.

The options are for machines where a container may not raise limits or use systemd's control groups, as in other
containers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.helm import ROOT
from tests.servers import program

SUITE = "trixie"
CACHE = Path.home() / ".cache/shoal-tests"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass
class Engine:
    folder: Path
    # overlay shares the files of layers; vfs copies all of them, and works everywhere.
    driver: str = "vfs"

    def _call(self, *args: object, check: bool = True, seconds: float = 900) -> subprocess.CompletedProcess[str]:
        result = subprocess.run([*map(str, args)], capture_output=True, text=True, timeout=seconds, cwd=ROOT)
        assert not check or result.returncode == 0, f"{args}: {result.stdout[-2000:]}{result.stderr[-2000:]}"
        return result

    @property
    def _where(self) -> tuple[object, ...]:
        return "--root", self.folder / "root", "--runroot", self.folder / "run", "--storage-driver", self.driver

    def build(self, tag: str, file: Path, context: Path, **arguments: str) -> None:
        passed = [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]
        # A machine may reach its registry through a proxy with a certificate of its own.
        if _CERTIFICATES.exists():
            passed += ["--volume", f"{_CERTIFICATES}:/run/ca.crt:ro", "--env", "PIP_CERT=/run/ca.crt"]
        self._call(
            "buildah", *self._where, "bud", "--isolation", "chroot", "--format", "docker", *passed, "-t", tag,
            "-f", file, context,
        )  # fmt: skip

    def podman(self, *args: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self._call(
            "podman", "--log-level", "error", *self._where, "--runtime", shutil.which("runc"), "--cgroup-manager",
            "cgroupfs", "--events-backend", "file", *args, check=check,
        )  # fmt: skip

    def run(self, image: str, *args: object, options: tuple[object, ...] = (), check: bool = True) -> str:
        """Run a container as deploy/ does: read-only, no capabilities, on the network of this machine."""
        result = self.podman(
            "run", "--network", "host", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "--read-only",
            "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", *options, image, *args,
            check=check,
        )  # fmt: skip
        return result.stdout.strip()

    def save(self, image: str, tag: str) -> Path:
        """Write an image as Docker loads it, under another tag."""
        file = self.folder / "image.tar"
        self._call("buildah", *self._where, "push", image, f"docker-archive:{file}:{tag}")
        return file

    def inspect(self, image: str) -> dict[str, Any]:
        (details,) = json.loads(self.podman("image", "inspect", image).stdout)
        return dict(details)

    def close(self) -> None:
        self.podman("rm", "--force", "--all", check=False)


@contextmanager
def engine() -> Iterator[Engine]:
    for name in ("buildah", "podman", "runc", "debootstrap"):
        program(name, f"apt-get install {name}")
    if os.geteuid() != 0:
        pytest.skip("containers are built and run as root; run: sudo make test-all")
    # Not below pytest's folder: paths of sockets in it would be too long.
    folder = Path(tempfile.mkdtemp(prefix="shoal-engine-", dir="/var/tmp"))
    podman = Engine(folder, "overlay" if _can_overlay(folder / "overlay") else "vfs")
    try:
        podman.build("shoal-base", _base(folder) / "Dockerfile", folder / "base")
        yield podman
    finally:
        podman.close()
        shutil.rmtree(folder, ignore_errors=True)


def _can_overlay(folder: Path) -> bool:
    """Whether layers can be mounted here. In a container that may not, or on some file systems, they cannot."""
    lower, upper, work, merged = (folder / name for name in ("lower", "upper", "work", "merged"))
    for part in (lower, upper, work, merged):
        part.mkdir(parents=True)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    if subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, merged], capture_output=True).returncode:
        return False
    subprocess.run(["umount", merged], check=True)
    return True


def _base(folder: Path) -> Path:
    """A context with the base image: Debian with Python."""
    context = folder / "base"
    context.mkdir()
    shutil.copy(system("base"), context / "base.tar")
    (context / "Dockerfile").write_text("FROM scratch\nADD base.tar /\nENV LANG=C.UTF-8\n")
    return context


# The Debian systems that tests start containers from: the packages of each. All but the first have those of base, too.
SYSTEMS = {
    "base": ("python3", "python3-venv", "ca-certificates"),
    "machine": (
        *("docker.io", "docker-cli", "docker-compose", "iptables", "iproute2", "procps"),
        *("systemd", "systemd-sysv", "dbus"),
    ),
    "services": ("valkey-server", "postgresql", "mariadb-server", "prometheus"),
}
_USELESS = ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
_INSTALL = """
export DEBIAN_FRONTEND=noninteractive
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d
mkdir -p /usr/share/man/man1 /var/cache/apt/archives/partial /var/lib/apt/lists/partial
apt-get -qq update
apt-get -qq install -y --no-install-recommends "$@"
# Databases that packages make are not part of an image.
rm -rf /usr/sbin/policy-rc.d /var/lib/mysql/* /var/lib/postgresql/* /etc/machine-id /var/lib/dbus/machine-id
"""


def system(name: str) -> Path:
    """An archive of a Debian system, made once per machine."""
    kept = CACHE / f"{name}-{SUITE}.tar"
    if kept.exists():
        return kept
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="shoal-system-", dir="/var/tmp") as made:
        # It becomes the root folder, which every user may read.
        Path(made).chmod(0o755)
        if name == "base":
            _make("debootstrap", "--variant=minbase", f"--include={','.join(SYSTEMS[name])}", SUITE, made)
        else:
            subprocess.run(["tar", "-C", made, "-xpf", system("base")], check=True)
            # The archive is reached as from this machine; the file is the machine's own, not the system's.
            shutil.copy("/etc/resolv.conf", Path(made) / "etc/resolv.conf")
            _make("chroot", made, "sh", "-ec", _INSTALL, "install", *SYSTEMS[name])
            (Path(made) / "etc/resolv.conf").write_text("")
        for useless in _USELESS:
            shutil.rmtree(Path(made) / useless, ignore_errors=True)
        part = kept.with_suffix(f".{os.getpid()}")
        subprocess.run(["tar", "-C", made, "--exclude=./dev/*", "-cf", part, "."], check=True)
        part.rename(kept)
    return kept


def _make(*argv: object) -> None:
    made = subprocess.run([*map(str, argv)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"{argv[0]} cannot install packages of Debian: {(made.stdout + made.stderr)[-500:]}")


if __name__ == "__main__":
    # The sizes that docs/operations/containers.md states.
    with engine() as built:
        print(f"base {built.inspect('localhost/shoal-base')['Size'] / 1e6:.0f} MB")
        for lock in ("run", "all"):
            built.build(f"shoal:{lock}", ROOT / "Dockerfile", ROOT, BASE="localhost/shoal-base", LOCK=lock)
            print(f"LOCK={lock} {built.inspect(f'localhost/shoal:{lock}')['Size'] / 1e6:.0f} MB", flush=True)
