"""Renders the chart of deploy/helm, and holds it against what kustomize makes of deploy/kubernetes."""

import json
import shutil
import subprocess

import pytest
import yaml

from testing import manifests

CHART = manifests.REPOSITORY / "deploy/helm/cairn"
INDEX = "metadata.labels['batch.kubernetes.io/job-completion-index']"

pytestmark = pytest.mark.skipif(manifests.kubectl() is None, reason="not run: no kubectl with kustomize 5 is on PATH")


@pytest.fixture
def template(helm, tmp_path):
    """Returns a function that renders a chart with values."""
    def render(values, chart=CHART):
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
        done = subprocess.run([helm, "template", "release", chart, "--values", tmp_path / "values.yaml"],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [one for one in yaml.safe_load_all(done.stdout) if one]

    return render


def named(objects):
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def test_chart_has_the_objects_of_kustomize(template, tmp_path):
    objects = named(template({}))
    base = {key: one for key, one in named(manifests.render("shared-filesystem", tmp_path)).items()
            if key[0] not in ("JobSet", "Secret")}
    base["PersistentVolumeClaim", "cairn-checkpoints"]["spec"].pop("storageClassName")
    assert objects.keys() == base.keys()
    for key, one in objects.items():
        assert json.dumps(one, sort_keys=True) == json.dumps(base[key], sort_keys=True), key


def test_values_are_put_into_the_objects(template, validate, tmp_path):
    objects = template({"image": {"repository": "registry/cairn", "tag": 7}, "tokenSecret": "mine",
                        "claim": {"size": "2Ti", "storageClassName": "fast"}, "page": {"enabled": True},
                        "podMonitor": {"enabled": True}, "coordinator": {"resources": {"limits": {"memory": "4Gi"}}}})
    assert validate(list(manifests.checkable(objects)), "1.29.0", tmp_path) == []
    found = named(objects)
    claim = found["PersistentVolumeClaim", "cairn-checkpoints"]["spec"]
    assert claim["storageClassName"] == "fast" and claim["resources"]["requests"]["storage"] == "2Ti"
    for name, resources in (("cairn-coordinator", {"limits": {"memory": "4Gi"}}), ("cairn-page", None)):
        spec = found["Deployment", name]["spec"]["template"]["spec"]
        assert spec["containers"][0]["image"] == "registry/cairn:7"
        assert resources is None or spec["containers"][0]["resources"] == resources
        assert "mine" in [volume.get("secret", {}).get("secretName") for volume in spec["volumes"]]
    assert ("PodMonitor", "cairn-ranks") in found


STORE = {"root": "s3://models/llm", "storage": {"env": {"AWS_REGION": "eu-west-1"}, "serviceAccountName": "store",
                                                "envFrom": [{"secretRef": {"name": "keys"}}]}}


def test_root_in_a_store_takes_the_claim_away(template, validate, tmp_path):
    objects = template(STORE | {"page": {"enabled": True}})
    assert validate(list(manifests.checkable(objects)), "1.29.0", tmp_path) == []
    found = named(objects)
    assert not [key for key in found if key[0] == "PersistentVolumeClaim"]
    spec = found["Deployment", "cairn-coordinator"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in spec["volumes"]} == {"token"}
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert variables["CAIRN_ROOT"] == "s3://models/llm" and variables["AWS_REGION"] == "eu-west-1"
    assert spec["serviceAccountName"] == "store" and container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    page = found["Deployment", "cairn-page"]["spec"]["template"]["spec"]
    assert "envFrom" not in page["containers"][0] and "serviceAccountName" not in page, "it gets no keys"


@pytest.fixture
def jobs(tmp_path):
    """Returns a chart of one Job that depends on the chart, as a user has it."""
    directory = tmp_path / "jobs"
    (directory / "templates").mkdir(parents=True)
    shutil.copytree(CHART, directory / "charts/cairn")  # its links are followed
    (directory / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": "jobs", "version": "0.1.0"}))
    job = next(yaml.safe_load_all((manifests.DEPLOY / "examples/job/job.yaml").read_text()))
    (directory / "pod.yaml").write_text(yaml.safe_dump(job["spec"].pop("template")))
    text = yaml.safe_dump(job) + (
        '  template:\n    {{- include "cairn.pod" (list (.Files.Get "pod.yaml" | fromYaml) "'
        + INDEX + '" .Subcharts.cairn) | nindent 4 }}\n')
    (directory / "templates/job.yaml").write_text(text)
    return directory


def test_pod_of_a_job_is_that_of_the_component(template, jobs, tmp_path):
    made = named(template({}, jobs))["Job", "demo"]["spec"]["template"]
    kustomized = named(manifests.render("one-node", tmp_path))["Job", "demo"]["spec"]["template"]
    assert json.dumps(made, sort_keys=True) == json.dumps(kustomized, sort_keys=True)


def test_pod_of_a_job_uses_the_store_and_the_settings(template, jobs, validate, tmp_path):
    objects = template({"cairn": STORE | {"sidecar": {"allowUid": 4711, "gracePeriodSeconds": 300}}}, jobs)
    assert validate(list(manifests.checkable(objects)), "1.29.0", tmp_path) == []
    spec = named(objects)["Job", "demo"]["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == 300
    (sidecar,) = spec["initContainers"]
    variables = {one["name"]: one.get("value") for one in sidecar["env"]}
    assert variables["CAIRN_ALLOW_UID"] == "4711" and variables["CAIRN_ROOT"] == "s3://models/llm"
    mounted = {one["name"] for container in (sidecar, *spec["containers"]) for one in container["volumeMounts"]}
    assert mounted == {one["name"] for one in spec["volumes"]} == {"cairn-sockets", "cairn-token"}
    assert "envFrom" not in spec["containers"][0], "the trainer gets no keys"


def test_fault_in_values_is_told(helm):
    done = subprocess.run([helm, "template", "release", CHART, "--set", "image.tag=7,claim.sise=2Ti"],
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "sise" in done.stderr
