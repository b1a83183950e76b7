"""The Helm chart, rendered by real Helm and validated against the schemas of the oldest and newest Kubernetes."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.deploy.helm import CHART, RENDERED, ROOT, VERSIONS, by_kind, missing, objects, run, template

pytestmark = pytest.mark.full

CHOICES: dict[str, dict[str, str]] = {
    "plain": {},
    "hpa": {"autoscaling.kind": "hpa", "autoscaling.min": "2"},
    "keda": {"autoscaling.kind": "keda"},
    "store of my own": {"store.url": "rediss://store.example:6380/0", "shoalToml": "[worker]\nhosts = 100"},
    "monitoring": {"serviceMonitor.enabled": "true", "prometheusRule.enabled": "true"},
    "without api": {"api.enabled": "false", "networkPolicy.enabled": "false"},
}
# Objects that need an operator, whose schemas are not part of Kubernetes. Those of KEDA are checked by a test below.
CUSTOM = {"ScaledObject", "TriggerAuthentication", "ServiceMonitor", "PrometheusRule"}


def pods(text: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        (manifest["metadata"]["name"], manifest["spec"]["template"]["spec"])
        for manifest in objects(text)
        if manifest["kind"] in ("Deployment", "StatefulSet")
    ]


def test_the_chart_passes_lint() -> None:
    result = run("lint", "--strict", CHART)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(("choice", "version"), itertools.product(CHOICES, VERSIONS))
def test_every_object_is_valid_for_the_oldest_and_the_newest_kubernetes(choice: str, version: str) -> None:
    try:
        validator = importlib.import_module("kubernetes_validate")
    except ImportError:
        missing("kubernetes-validate")
    checked = 0
    for manifest in objects(template(CHOICES[choice])):
        if manifest["kind"] not in CUSTOM:
            validator.validate(manifest, version, strict=True)
            checked += 1
    assert checked >= 4


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    try:
        validator = importlib.import_module("kubernetes_validate")
    except ImportError:
        missing("kubernetes-validate")
    service = by_kind(template(), "Service")["shoal-api"]
    service["spec"]["ports"][0]["potr"] = 1
    with pytest.raises(validator.ValidationError):
        validator.validate(service, VERSIONS[1], strict=True)


def keda_schema(kind: str) -> Any:
    """The schema of KEDA's definition of this kind, strict: a field that it does not name is an error."""
    try:
        models = importlib.import_module("cloudcoil.models.keda.v1alpha1")
    except ImportError:
        missing("cloudcoil-models-keda")
    schema = getattr(models, kind).model_json_schema(by_alias=True)
    for definition in (schema, *schema["$defs"].values()):
        if "properties" in definition:
            definition["additionalProperties"] = False
    return schema


@pytest.mark.parametrize("choice", [{}, {"autoscaling.max": "200", "api.existingSecret": "tokens"}])
def test_the_objects_of_keda_are_valid_for_keda(choice: dict[str, str]) -> None:
    text = template({"autoscaling.kind": "keda", **choice})
    for kind in ("ScaledObject", "TriggerAuthentication"):
        checked = by_kind(text, kind)
        assert checked
        for manifest in checked.values():
            jsonschema.validate(manifest, keda_schema(kind))


def test_mistakes_in_objects_of_keda_are_found() -> None:
    (manifest,) = by_kind(template({"autoscaling.kind": "keda"}), "ScaledObject").values()
    schema = keda_schema("ScaledObject")
    mistakes: tuple[dict[str, Any], ...] = (
        {"maxReplicas": 3}, {"pollingInterval": "often"}, {"triggers": [{"type": "metrics-api"}]},
        {"triggers": [{"type": "metrics-api", "metadata": {"targetValue": 1}}]},
    )  # fmt: skip
    for mistake in mistakes:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**manifest, "spec": {**manifest["spec"], **mistake}}, schema)


def test_workers_are_scaled_by_one_autoscaler_or_none() -> None:
    kinds = {"HorizontalPodAutoscaler", "ScaledObject"}
    for kind, expected in (("none", set()), ("hpa", {"HorizontalPodAutoscaler"}), ("keda", {"ScaledObject"})):
        text = template({"autoscaling.kind": kind})
        assert {manifest["kind"] for manifest in objects(text)} & kinds == expected
        # An autoscaler and `replicas` would overwrite each other at every upgrade.
        worker = by_kind(text, "Deployment")["shoal-worker-default"]
        assert ("replicas" in worker["spec"]) is (kind == "none")
    result = run("template", "shoal", CHART, "--set", "autoscaling.kind=both")
    assert "autoscaling/kind" in result.stderr
    result = run("template", "shoal", CHART, "--set", "autoscaling.kind=keda,autoscaling.pool=other")
    assert 'autoscaling.pool is "other", but no pool of workers.pools has this name' in result.stderr


def test_autoscalers_read_the_metric_of_wanted_workers() -> None:
    sets = {"workers.pools[0].name": "default", "workers.pools[0].processes": "4"}
    hpa = by_kind(template({**sets, "autoscaling.kind": "hpa"}), "HorizontalPodAutoscaler")["shoal-worker-default"]
    (metric,) = hpa["spec"]["metrics"]
    assert metric["external"]["metric"] == {"name": "shoal_workers_wanted"}
    # Four worker processes in a pod: a quarter of the pods.
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "4"}
    assert hpa["spec"]["minReplicas"] == 1
    text = template({**sets, "autoscaling.kind": "keda"})
    scaled = by_kind(text, "ScaledObject")["shoal-worker-default"]["spec"]
    assert scaled["scaleTargetRef"]["name"] in by_kind(text, "Deployment")
    assert scaled["minReplicaCount"] == 0
    (trigger,) = scaled["triggers"]
    assert trigger["type"] == "metrics-api"
    assert trigger["metadata"] == {
        "url": "http://shoal-api.shoal.svc:8080/v1/stats", "valueLocation": "workers_wanted", "targetValue": "4",
        "activationTargetValue": "0", "authMode": "bearer",
    }  # fmt: skip
    (secret,) = by_kind(text, "TriggerAuthentication")[trigger["authenticationRef"]["name"]]["spec"]["secretTargetRef"]
    assert secret["key"] in by_kind(text, "Secret")[secret["name"]]["stringData"]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_pod_meets_the_restricted_pod_security_standard(choice: str) -> None:
    for name, pod in pods(template(CHOICES[choice])):
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["enableServiceLinks"] is False, name
        for container in pod["containers"]:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, name
            assert own["readOnlyRootFilesystem"] is True, name
            assert own["capabilities"] == {"drop": ["ALL"]}, name
            assert {"requests", "limits"} <= container["resources"].keys(), name
            assert "livenessProbe" in container, name


def test_workers_have_time_to_drain() -> None:
    ((_, pod),) = [(name, pod) for name, pod in pods(template({"workers.graceSeconds": "45"})) if "worker" in name]
    environ = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
    assert environ["SHOAL_WORKER_GRACE_SECONDS"] == "45"
    assert pod["terminationGracePeriodSeconds"] == 65


def test_workers_reach_the_internet_and_the_store_but_no_other_internal_address() -> None:
    policies = by_kind(template(), "NetworkPolicy")
    worker = policies["shoal-worker"]["spec"]
    assert worker["policyTypes"] == ["Ingress", "Egress"]
    assert worker["ingress"] == []
    targets = [target for rule in worker["egress"] for target in rule["to"]]
    blocks = {target["ipBlock"]["cidr"]: target["ipBlock"]["except"] for target in targets if "ipBlock" in target}
    assert blocks.keys() == {"0.0.0.0/0", "::/0"}
    # Private networks, carrier-grade NAT, loopback and the metadata services of clouds.
    assert {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"} <= set(
        blocks["0.0.0.0/0"]
    )
    assert {"fc00::/7", "fe80::/10"} <= set(blocks["::/0"])
    inside = [target for target in targets if "ipBlock" not in target]
    assert [sorted(target) for target in inside] == [["namespaceSelector", "podSelector"], ["podSelector"]]
    assert inside[1]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "store"
    assert policies["shoal-store"]["spec"]["egress"] == []


def test_workers_reach_an_external_store_at_its_ports_or_at_configured_addresses() -> None:
    def rules(**values: str) -> list[dict[str, Any]]:
        text = template({"store.existingSecret": "mine", **{name.replace("_", "."): v for name, v in values.items()}})
        egress: list[dict[str, Any]] = by_kind(text, "NetworkPolicy")["shoal-worker"]["spec"]["egress"]
        return egress[1:-1]

    (private,) = rules(store_ports="{6379,26379}")
    assert [port["port"] for port in private["ports"]] == [6379, 26379]
    assert {"ipBlock": {"cidr": "10.0.0.0/8"}} in private["to"]
    (exact,) = rules(**{"store_egress[0].to[0].ipBlock.cidr": "10.1.2.3/32"})
    assert exact == {"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}]}


def test_each_pool_by_spider_and_image_is_a_separate_deployment() -> None:
    sets = {
        "workers.pools[0].name": "plain", "workers.pools[1].name": "books", "workers.pools[1].replicas": "3",
        "workers.pools[1].spiders[0]": "books", "workers.pools[1].image.repository": "registry.example/mine",
        "workers.pools[1].image.tag": "7",
    }  # fmt: skip
    text = template(sets)
    deployments = by_kind(text, "Deployment")
    assert {"shoal-worker-plain", "shoal-worker-books"} < deployments.keys()
    books = deployments["shoal-worker-books"]["spec"]
    assert books["replicas"] == 3
    (container,) = books["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/mine:7"
    assert container["args"][-2:] == ["--spider", "books"]
    assert len(by_kind(text, "PodDisruptionBudget")) == 2
    selectors = [deployment["spec"]["selector"]["matchLabels"]["shoal/pool"] for deployment in deployments.values() if
                 "shoal/pool" in deployment["spec"]["selector"]["matchLabels"]]  # fmt: skip
    assert sorted(selectors) == ["books", "plain"]


def test_the_chart_has_the_alert_rules_that_promtool_tests() -> None:
    assert (CHART / "files/alerts.yaml").read_text() == (ROOT / "deploy/monitoring/alerts.yaml").read_text()
    (rule,) = by_kind(template(CHOICES["monitoring"]), "PrometheusRule").values()
    assert {alert["alert"] for alert in rule["spec"]["groups"][0]["rules"]} >= {"ShoalNoWorkers", "ShoalStalled"}


def test_the_chart_is_for_this_version() -> None:
    from shoal.version import __version__

    assert f'appVersion: "{__version__}"' in (CHART / "Chart.yaml").read_text()


@pytest.mark.parametrize("name", RENDERED)
def test_the_plain_manifests_match_the_rendered_chart(name: str) -> None:
    text = (ROOT / "deploy/kubernetes" / name).read_text()
    assert text == template(RENDERED[name]), "run: make manifests"
    # Passwords and tokens are the operator's own.
    assert not by_kind(text, "Secret")
