"""Holds the objects of other projects' kinds (JobSet, PyTorchJob, TrainJob, RayCluster, Kueue) against their own
definitions, as their API server would: strictly.

The definitions are no part of this repository. CAIRN_TEST_CRDS names a directory of their files, such as
`jobset.x-k8s.io_jobsets.yaml`; without it only the pod templates of these kinds are checked (test_kubernetes.py)."""

import copy
import os
import pathlib

import pytest
import yaml

from testing import manifests

DIRECTORY = os.environ.get("CAIRN_TEST_CRDS", "")
OVERLAYS = sorted(path.name for path in (manifests.DEPLOY / "overlays").iterdir())
jsonschema = pytest.importorskip("jsonschema")

pytestmark = [
    pytest.mark.skipif(manifests.kubectl() is None, reason="not run: no kubectl with kustomize 5 is on PATH"),
    pytest.mark.skipif(not DIRECTORY, reason="not run: CAIRN_TEST_CRDS names no directory of definitions"),
]


def strict(schema):
    """Returns a schema that refuses fields that it does not name, as an API server does with fieldValidation=Strict."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


@pytest.fixture(scope="module")
def definitions():
    """Returns the schemas by (apiVersion, kind), without those of versions that are deprecated."""
    found = {}
    for path in sorted(pathlib.Path(DIRECTORY).glob("*.yaml")):
        for one in yaml.load_all(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if not one or one["kind"] != "CustomResourceDefinition":
                continue
            spec = one["spec"]
            for version in spec["versions"]:
                if version.get("deprecated"):
                    continue
                schema = strict(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                name = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
                found[name] = jsonschema.Draft202012Validator(schema)
    return found


def others(objects):
    return [one for one in objects if one["kind"] in manifests.OTHERS]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_objects_fit_their_definitions(overlay, definitions, tmp_path):
    objects = others(manifests.render(overlay, tmp_path))
    if not objects:
        pytest.skip("it has no objects of other kinds")
    for one in objects:
        faults = [f"{'/'.join(map(str, fault.absolute_path))}: {fault.message[:200]}"
                  for fault in definitions[one["apiVersion"], one["kind"]].iter_errors(one)]
        assert not faults, (one["kind"], faults)


def test_pod_monitors_fit_their_definition(definitions):
    for one in yaml.safe_load_all((manifests.DEPLOY / "components/pod-monitor/pod-monitor.yaml").read_text()):
        faults = list(definitions[one["apiVersion"], one["kind"]].iter_errors(one))
        assert not faults, (one["metadata"]["name"], faults)


def test_misspelt_field_is_found(definitions, tmp_path):
    (jobset,) = others(manifests.render("shared-filesystem", tmp_path))
    jobset = copy.deepcopy(jobset)
    jobset["spec"]["failurePolicy"]["maxRestart"] = jobset["spec"]["failurePolicy"].pop("maxRestarts")
    faults = list(definitions[jobset["apiVersion"], jobset["kind"]].iter_errors(jobset))
    assert any("maxRestart" in fault.message for fault in faults)
