"""Renders every overlay of deploy/kubernetes and holds it against Kubernetes' own schemas, strictly.

JobSet, PyTorchJob, TrainJob, RayCluster and Kueue are no part of Kubernetes, and their schemas are not to be had from
the package index: of these kinds the pod templates are checked here, as templates of Kubernetes, and the rest by
test_custom_resources.py where the definitions are at hand."""

import copy
import json
import re
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
def rendered(tmp_path_factory):
    directory = tmp_path_factory.mktemp("deploy")
    return {overlay: manifests.render(overlay, directory) for overlay in OVERLAYS}


def agents(objects):
    """Yields the agent's container and the pod's spec, of every pod template."""
    for container, spec in manifests.containers(objects):
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
        container["env"].pop("CAIRN_NODE_RANK")
        return container

    found = {overlay: [comparable(container) for container, _ in agents(objects)]
             for overlay, objects in rendered.items()}
    assert all(len(containers) == 1 for containers in found.values())
    native = found["one-node"][0]
    for overlay, (container,) in found.items():
        if overlay in ("podman", "object-store", "mirror", OLD):
            continue
        assert json.dumps(container, sort_keys=True) == json.dumps(native, sort_keys=True), overlay
    # An object store comes to it by variables, and a root there has no volume.
    stored = copy.deepcopy(native)
    stored["envFrom"] = [{"configMapRef": {"name": "cairn-store"}},
                         {"secretRef": {"name": "cairn-store-keys", "optional": True}}]
    assert found["mirror"] == [stored]
    del stored["env"]["CAIRN_ROOT"]
    stored["volumeMounts"] = [one for one in stored["volumeMounts"] if one["name"] != "cairn-checkpoints"]
    assert found["object-store"] == [stored]
    # A cluster before 1.24 has neither native sidecars nor probes by gRPC.
    old = copy.deepcopy(native)
    for key in ("restartPolicy", "startupProbe"):
        del old[key]
    old["readinessProbe"] = {"httpGet": {"path": "/serving", "port": "metrics"}, "periodSeconds": 2}
    assert found[OLD] == [old]
    # podman plays no native sidecars and no probes, and knows no address of a pod.
    plain = copy.deepcopy(native)
    for key in ("restartPolicy", "startupProbe", "readinessProbe", "lifecycle", "ports"):
        del plain[key]
    for key in ("POD_IP", "CAIRN_ADVERTISE", "CAIRN_NODE"):
        del plain["env"][key]
    del plain["env"]["COORDINATOR_SERVICE"]
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
    assert images == (3 if overlay == OLD else 2)  # the coordinator's, the agents', and that of the page


def test_patches_of_all_kinds_are_made_from_one_file():
    made = subprocess.run([manifests.REPOSITORY / "tools/kubernetes_patches"], capture_output=True, text=True,
                          check=False)
    assert made.returncode == 0, made.stdout


def numbers(value):
    """Yields the field that tells each pod's agents the pod's number."""
    for container, _ in agents(value):
        number = next(one for one in container["env"] if one["name"] == "CAIRN_NODE_RANK")
        yield number["valueFrom"]["fieldRef"]["fieldPath"]


def test_agents_and_torchrun_have_the_pods_number_from_one_place(rendered):
    (label,) = numbers(rendered["pytorchjob"])
    container = trainers(rendered["pytorchjob"])[0]
    assert container["env"][0] == {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": label}}}
    assert "--node-rank=$(NODE_RANK)" in container["command"]
    for overlay in ("one-node", "shared-filesystem", "trainjob"):
        assert list(numbers(rendered[overlay])) == ["metadata.labels['batch.kubernetes.io/job-completion-index']"]
    for overlay in ("one-node", "shared-filesystem"):
        assert "--node-rank=$(JOB_COMPLETION_INDEX)" in trainers(rendered[overlay])[0]["command"]


def trainers(objects):
    """Returns the containers that get the address of an agent."""
    return [container for one in objects for template in manifests.templates(one)
            for container in template["spec"]["containers"]
            if any(variable["name"] == "CAIRN_AGENT" for variable in container.get("env", []))]


@pytest.mark.parametrize("overlay", ["one-node", "shared-filesystem", "pytorchjob"])
def test_torchrun_starts_the_ranks_that_have_agents(overlay, rendered):
    (template,) = [template for one in rendered[overlay] for template in manifests.templates(one)
                   if "cairn/pods" in template["metadata"].get("annotations", {})]
    (container,) = trainers(rendered[overlay])
    pods, ranks = (template["metadata"]["annotations"][f"cairn/{name}"] for name in ("pods", "ranks-per-pod"))
    assert {f"--nnodes={pods}", f"--nproc-per-node={ranks}"} <= set(container["command"])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_container_tells_prometheus_by_a_port_that_the_policies_open(overlay, rendered):
    for container, _ in manifests.containers(rendered[overlay]):
        variables = manifests.settings(container, rendered[overlay])
        assert variables["CAIRN_METRICS_LISTEN"] == "0.0.0.0:9420", container["name"]
        if overlay == "podman":
            continue  # it would publish ports on the machine
        ports = {one["containerPort"] for one in container["ports"] if one["name"].startswith("metrics")}
        assert ports == {9420}
        name = "cairn-coordinator" if container["name"] == "coordinator" else "cairn-ranks"
        (policy,) = [one for one in rendered[overlay]
                     if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] == name]
        opened = {port["port"] for rule in policy["spec"]["ingress"]
                  if any("namespaceSelector" in peer for peer in rule["from"])
                  for port in rule["ports"]}
        assert opened == ports, name


def pod_monitor(container):
    """Returns the ports of a sidecar that the PodMonitor takes."""
    text = (manifests.DEPLOY / "components/pod-monitor/pod-monitor.yaml").read_text()
    (monitor,) = [one for one in yaml.safe_load_all(text) if one["metadata"]["name"] == "cairn-ranks"]
    wanted = [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]]
    return [port["containerPort"] for port in container["ports"] if port["name"] in wanted]


def scrape_config(container):
    """The same of the configuration for a Prometheus without an operator."""
    configuration = yaml.safe_load((manifests.REPOSITORY / "deploy/monitoring/prometheus.yaml").read_text())
    (keep,) = [rule for job in configuration["scrape_configs"] for rule in job.get("relabel_configs", [])
               if rule.get("action") == "keep"]
    return [port["containerPort"] for port in container["ports"]
            if re.fullmatch(keep["regex"], f"{container['name']};{port['name']}")]


def test_the_page_fits_the_strict_schema_and_reaches_the_coordinator(validate, tmp_path):
    manifests.render("one-node", tmp_path)  # makes the copy of the tree
    overlay_of(tmp_path / "kubernetes", "page", "job", {"CAIRN_ROOT": "gs://models/llm"}, ["agent", "page"])
    objects = manifests.render("page", tmp_path)
    assert validate(list(manifests.checkable(objects)), VERSIONS[0], tmp_path) == []
    (page,) = [one for one in objects if one["metadata"]["name"] == "cairn-page" and one["kind"] == "Deployment"]
    (policy,) = [one for one in objects
                 if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] == "cairn-coordinator"]
    peers = [peer["podSelector"]["matchLabels"] for rule in policy["spec"]["ingress"] for peer in rule["from"]
             if "matchLabels" in peer.get("podSelector", {})]
    assert all(peer.items() <= page["spec"]["template"]["metadata"]["labels"].items() for peer in peers) and peers
    secrets = {one["metadata"]["name"] for one in objects if one["kind"] == "Secret"}
    assert {volume["secret"]["secretName"] for volume in page["spec"]["template"]["spec"]["volumes"]} <= secrets


@pytest.mark.parametrize("takes", [pod_monitor, scrape_config])
def test_prometheus_takes_the_one_port_of_a_sidecar(takes, rendered):
    for overlay in ("one-node", "shared-filesystem", "raycluster"):
        ((container, _),) = agents(rendered[overlay])
        assert takes(container) == [9420]


@pytest.mark.parametrize("overlay", [overlay for overlay in OVERLAYS if overlay != "podman"])
def test_names_follow_a_prefix_and_a_suffix(overlay, rendered, tmp_path):
    """Names that nobody defines, such as a Secret that an operator makes by hand, stay."""
    manifests.render(overlay, tmp_path)  # makes the copy of the tree
    renamed = tmp_path / "kubernetes/overlays/renamed"
    renamed.mkdir()
    (renamed / "kustomization.yaml").write_text(yaml.safe_dump(
        {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [f"../{overlay}"],
         "namePrefix": "a-", "nameSuffix": "-b"}))
    objects = manifests.render("renamed", tmp_path)
    services = {one["metadata"]["name"] for one in objects if one["kind"] == "Service"}
    assert "a-cairn-coordinator-b" in services
    assert manifests.lacks(objects) == []
    found = list(manifests.containers(objects))
    assert len(found) == 2
    secrets = {one["metadata"]["name"] for one in objects if one["kind"] == "Secret"}
    for _, spec in found:
        assert {volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume} <= secrets
        assert spec.get("subdomain") in {None, *services}
    addressed = [one for one in every_container(objects) if "COORDINATOR_SERVICE" in variables_of(one)]
    assert {one["name"] for one in addressed} >= {"cairn-agent"}
    for container in addressed:
        assert variables_of(container)["COORDINATOR_SERVICE"] == "a-cairn-coordinator-b"
        assert variables_of(container)["CAIRN_COORDINATOR"] == "$(COORDINATOR_SERVICE):7420"
    for one in objects:
        if one["kind"] == "TrainJob":
            runtimes = {other["metadata"]["name"] for other in objects if other["kind"] == "TrainingRuntime"}
            assert one["spec"]["runtimeRef"]["name"] in runtimes
        if one["kind"] == "Service" and one["spec"].get("clusterIP") == "None":
            labels = [template["metadata"]["labels"] for other in objects for template in manifests.templates(other)]
            assert any(one["spec"]["selector"].items() <= these.items() for these in labels), "it finds the job's pods"
    old = {one["metadata"]["name"] for one in rendered[overlay] if one["kind"] in ("Service", "PersistentVolumeClaim")}
    for container in every_container(objects):
        words = " ".join([*container.get("command", []), *map(str, variables_of(container).values())])
        assert not re.search(rf"(?<![\w/-])({'|'.join(map(re.escape, sorted(old)))})(?![\w/-])", words), words


def every_container(objects):
    for one in objects:
        for template in manifests.templates(one):
            yield from template["spec"].get("initContainers", []) + template["spec"]["containers"]


def variables_of(container):
    return {one["name"]: one.get("value", "") for one in container.get("env", [])}


@pytest.mark.parametrize(("overlay", "address"), [
    ("one-node", "$(JOB_NAME)-0.$(JOB_NAME)"), ("shared-filesystem", "$(JOBSET_NAME)-workers-0-0.$(JOBSET_NAME)"),
    ("pytorchjob", "$(JOB_NAME)-worker-0")])
def test_torchrun_finds_the_first_pod_by_the_name_that_the_job_has(overlay, address, rendered):
    (container,) = trainers(rendered[overlay])
    assert f"--master-addr={address}" in container["command"]
    (variable,) = [one for one in container["env"] if one["name"] in ("JOB_NAME", "JOBSET_NAME")]
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] in (
        "metadata.labels['batch.kubernetes.io/job-name']", "metadata.labels['jobset.sigs.k8s.io/jobset-name']",
        "metadata.labels['training.kubeflow.org/job-name']")


def test_the_queue_is_asked_for_by_the_job_and_not_by_the_coordinator(rendered):
    queued = [one["kind"] for one in rendered["kueue"]
              if "kueue.x-k8s.io/queue-name" in one["metadata"].get("labels", {})]
    assert queued == ["Job"]


@pytest.mark.parametrize("example", ["jobset", "pytorchjob", "raycluster", "trainjob"])
def test_every_kind_of_job_goes_into_a_queue(example, tmp_path):
    manifests.render("one-node", tmp_path)  # makes the copy of the tree
    overlay_of(tmp_path / "kubernetes", "queued", example, {"CAIRN_ROOT": "gs://models/llm"}, ["agent", "kueue"])
    queued = [one["kind"] for one in manifests.render("queued", tmp_path)
              if "kueue.x-k8s.io/queue-name" in one["metadata"].get("labels", {})]
    assert [kind.lower() for kind in queued] == [example]


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


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_pod_has_what_its_root_and_its_mirror_need(overlay, rendered):
    assert manifests.lacks(rendered[overlay]) == []


def only(objects, kind):
    (found,) = [one for one in objects if one["kind"] == kind]
    return found


def container_of(objects, name):
    (found,) = [container for container, _ in manifests.containers(objects) if container["name"] == name]
    return found


def spec_of(objects, name):
    (found,) = [spec for container, spec in manifests.containers(objects) if container["name"] == name]
    return found


PLANTED = {
    "an agent without variables": ("object-store", "not one root",
                                   lambda objects: container_of(objects, "cairn-agent").pop("envFrom")),
    "a coordinator without variables": ("object-store", "not one root",
                                        lambda objects: container_of(objects, "coordinator").pop("envFrom")),
    "an agent that keeps the root of the base": (
        "object-store", "not one root", lambda objects: container_of(objects, "cairn-agent")["env"].append(
            {"name": "CAIRN_ROOT", "value": "/checkpoints"})),
    "no address": ("object-store", "not one root",
                   lambda objects: only(objects, "ConfigMap")["data"].pop("CAIRN_ROOT")),
    "no ConfigMap": ("mirror", "no ConfigMap cairn-store",
                     lambda objects: only(objects, "ConfigMap")["metadata"].update(name="other")),
    "a claim": ("object-store", "a claim is left",
                lambda objects: objects.append({"kind": "PersistentVolumeClaim", "metadata": {"name": "left"}})),
    "a volume of a claim that is gone": (
        "object-store", "no claim cairn-checkpoints", lambda objects: spec_of(objects, "coordinator")["volumes"].append(
            {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "cairn-checkpoints"}})),
    "a mount without its volume": ("object-store", "no volume cairn-sockets",
                                   lambda objects: spec_of(objects, "cairn-agent")["volumes"].pop(0)),
    "no keys": ("object-store", "coordinator: no Secret for keys",
                lambda objects: container_of(objects, "coordinator")["envFrom"].pop()),
    "no service account": ("mirror", "cairn-agent: no service account",
                           lambda objects: spec_of(objects, "cairn-agent").pop("serviceAccountName")),
    "a service account that is not there": ("mirror", "coordinator: no service account",
                                            lambda objects: objects.remove(only(objects, "ServiceAccount"))),
    "a token of Kubernetes": ("mirror", "a token of Kubernetes' API",
                              lambda objects: spec_of(objects, "coordinator").pop("automountServiceAccountToken")),
    "no region": ("mirror", "neither a region nor an endpoint",
                  lambda objects: only(objects, "ConfigMap")["data"].pop("AWS_REGION")),
    "an agent that may not read the mirror": (
        "mirror", "may not read s3://models/llm",
        lambda objects: only(objects, "ConfigMap")["data"].pop("CAIRN_IMPORT_ROOT")),
    "a root that is not mounted": ("mirror", "nothing is mounted at /checkpoints",
                                   lambda objects: container_of(objects, "cairn-agent")["volumeMounts"].pop(1)),
}


@pytest.mark.parametrize("lack", PLANTED)
def test_a_planted_lack_is_found(lack, rendered):
    overlay, told, plant = PLANTED[lack]
    objects = copy.deepcopy(rendered[overlay])
    plant(objects)
    assert any(told in line for line in manifests.lacks(objects)), manifests.lacks(objects)


def overlay_of(tree, name, example, data, components, job=None):
    """Writes an overlay with a store, as an operator would; `job` is put in place of the example's own file."""
    directory = tree / "overlays" / name
    directory.mkdir()
    (directory / "store.yaml").write_text(yaml.safe_dump(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cairn-store"}, "data": data}))
    if job is not None:
        (directory / "job.yaml").write_text(yaml.safe_dump(job))
    (directory / "kustomization.yaml").write_text(yaml.safe_dump({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": ["../../base", "job.yaml" if job else f"../../examples/{example}", "store.yaml"],
        "components": [f"../../components/{component}" for component in components]}))


IN_STORE = ({"CAIRN_ROOT": "gs://models/llm"}, ["agent", "object-store", "root-in-store"])
MIRRORED = ({"CAIRN_MIRROR": "gs://models/llm", "CAIRN_IMPORT_ROOT": "gs://models/llm"}, ["agent", "object-store"])


@pytest.mark.parametrize("example", ["job", "jobset", "pytorchjob", "raycluster", "trainjob"])
def test_every_kind_of_job_uses_a_store(example, rendered, validate, tmp_path):
    for name, (data, components) in {"in-store": IN_STORE, "mirrored": MIRRORED}.items():
        manifests.render("one-node", tmp_path)  # makes the copy of the tree
        overlay_of(tmp_path / "kubernetes", f"{example}-{name}", example, data, components)
        objects = manifests.render(f"{example}-{name}", tmp_path)
        assert len(list(agents(objects))) == 1
        assert manifests.lacks(objects) == []
        assert validate(list(manifests.checkable(objects)), VERSIONS[0], tmp_path) == []


def test_what_a_job_has_of_its_own_stays(rendered, tmp_path):
    job = next(yaml.safe_load_all((manifests.DEPLOY / "examples/job/job.yaml").read_text()))
    spec = job["spec"]["template"]["spec"]
    spec["initContainers"] = [{"name": "fetch", "image": "fetch"}]
    spec["volumes"] = [{"name": "data", "emptyDir": {}}]
    manifests.render("one-node", tmp_path)
    overlay_of(tmp_path / "kubernetes", "own", "job", *IN_STORE, job=job)
    objects = manifests.render("own", tmp_path)
    assert manifests.lacks(objects) == []
    spec = spec_of(objects, "cairn-agent")
    assert [one["name"] for one in spec["initContainers"]] == ["cairn-agent", "fetch"]
    assert [one["name"] for one in spec["volumes"]] == ["data", "cairn-sockets", "cairn-token"]
    assert "envFrom" not in spec["containers"][0], "the trainer gets no keys"
