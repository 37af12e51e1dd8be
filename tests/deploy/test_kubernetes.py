"""Renders every overlay of deploy/kubernetes and holds it against Kubernetes' own schemas, strictly.

JobSet, PyTorchJob, TrainJob and Kueue are no part of Kubernetes, and their schemas are not to be had from the package
index: of these kinds the pod templates are checked, as templates of Kubernetes, and nothing else."""

import copy
import json
import pathlib
import subprocess

import pytest
import yaml

from testing import manifests, podman

OVERLAYS = sorted(path.name for path in (manifests.DEPLOY / "overlays").iterdir())
# Native sidecars and what else the manifests use is in all of these.
VERSIONS = ["1.29.0", "1.33.0", "1.37.0"]
# It is for clusters whose schemas are not to be had. `tools/test --cluster` holds it against a real one.
OLD = "kubernetes-1.20"

pytestmark = pytest.mark.skipif(manifests.kubectl() is None, reason="not run: no kubectl with kustomize 5 is on PATH")


@pytest.fixture(scope="module")
def validate():
    """Returns a function that gives what a Kubernetes of a version finds wrong in objects."""
    python = subprocess.run([manifests.REPOSITORY / "tools/python_env", "kubernetes"], capture_output=True, text=True,
                            check=True).stdout.strip()

    def check(objects: list[dict], version: str, directory: pathlib.Path) -> list[str]:
        path = directory / f"objects-{version}.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        done = subprocess.run([python, "-m", "kubernetes_validate", "--strict", "-k", version, path],
                              capture_output=True, text=True, check=False)
        lines = (done.stdout + done.stderr).splitlines()
        passed = sum(" passed for resource " in line for line in lines)
        faults = [line for line in lines if " passed for resource " not in line]
        return faults if passed == len(objects) else faults + [f"{passed} of {len(objects)} objects passed"]

    return check


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    directory = tmp_path_factory.mktemp("deploy")
    return {overlay: manifests.render(overlay, directory) for overlay in OVERLAYS}


def agents(objects):
    """Yields the agent's container and the pod's spec, of every pod template."""
    for one in objects:
        for template in manifests.templates(one):
            spec = template["spec"]
            for container in spec.get("initContainers", []) + spec["containers"]:
                if container["name"] == "cairn-agent":
                    yield container, spec


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", [overlay for overlay in OVERLAYS if overlay != OLD])
def test_overlay_fits_the_strict_schema(overlay, version, rendered, validate, tmp_path):
    assert validate(list(manifests.checkable(rendered[overlay])), version, tmp_path) == []


def test_misspelt_field_of_the_agent_is_found(rendered, validate, tmp_path):
    objects = copy.deepcopy(list(manifests.checkable(rendered["shared-filesystem"])))
    container, _ = next(agents(objects))
    container["readinesProbe"] = container.pop("readinessProbe")
    assert any("readinesProbe" in line for line in validate(objects, "1.29.0", tmp_path))


def test_every_overlay_adds_the_same_agent(rendered):
    def comparable(container):
        container = copy.deepcopy(container)
        container["env"] = {one["name"]: {key: value for key, value in one.items() if key != "name"}
                            for one in container["env"]}
        container["env"].pop("CAIRN_RANK")
        return container

    found = {overlay: [comparable(container) for container, _ in agents(objects)]
             for overlay, objects in rendered.items()}
    assert all(len(containers) == 1 for containers in found.values())
    native = found["one-node"][0]
    for overlay, (container,) in found.items():
        if overlay in ("podman", OLD):
            continue
        assert json.dumps(container, sort_keys=True) == json.dumps(native, sort_keys=True), overlay
    # A cluster before 1.24 has neither native sidecars nor probes by gRPC.
    old = copy.deepcopy(native)
    for key in ("restartPolicy", "startupProbe"):
        del old[key]
    old["readinessProbe"] = {"tcpSocket": {"port": 7421}, "periodSeconds": 2}
    assert found[OLD] == [old]
    # podman plays no native sidecars and no probes, and knows no address of a pod.
    plain = copy.deepcopy(native)
    for key in ("restartPolicy", "startupProbe", "readinessProbe", "lifecycle", "ports"):
        del plain[key]
    for key in ("POD_IP", "CAIRN_ADVERTISE", "CAIRN_NODE"):
        del plain["env"][key]
    plain["env"]["CAIRN_COORDINATOR"] = {"value": "cairn-coordinator-pod-0:7420"}
    assert found["podman"] == [plain]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_containers_of_cairn_run_confined(overlay, rendered):
    images = 0
    for one in rendered[overlay]:
        for template in manifests.templates(one):
            spec = template["spec"]
            for container in spec.get("initContainers", []) + spec["containers"]:
                if container["image"] != "localhost/cairn:dev":
                    continue
                images += 1
                security = {**spec.get("securityContext", {}), **container["securityContext"]}
                assert security["runAsNonRoot"] and security["runAsUser"] == 7421
                assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
                assert security["capabilities"] == {"drop": ["ALL"]}
                assert security["seccompProfile"] == {"type": "RuntimeDefault"}
                assert container["resources"]["requests"]["memory"] and container["resources"]["limits"]["memory"]
    assert images == 2  # the coordinator's and the agent's


def test_token_is_not_readable_by_everybody_and_not_in_the_repository(rendered):
    assert (manifests.DEPLOY / "base/.gitignore").read_text().split() == ["token"]
    for _, spec in agents(rendered["one-node"]):
        secrets = [volume["secret"] for volume in spec["volumes"] if "secret" in volume]
        assert [secret["defaultMode"] for secret in secrets] == [0o440]
        assert spec["securityContext"]["fsGroup"] == 7421


def test_grace_periods_hold_the_save_and_the_drain(rendered):
    for container, spec in [*agents(rendered["one-node"]), *agents(rendered[OLD])]:
        command = container["lifecycle"]["preStop"]["exec"]["command"]
        assert command == podman.EVICTION
        timeout = int(command[command.index("--timeout") + 1].removesuffix("s"))
        assert timeout < spec["terminationGracePeriodSeconds"]
