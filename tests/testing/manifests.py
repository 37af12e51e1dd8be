"""The manifests of deploy/kubernetes, rendered, and what tests look for in them."""

from __future__ import annotations

import json
import pathlib
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy/kubernetes"
# Kinds that are no part of Kubernetes.
OTHERS = {"JobSet", "PyTorchJob", "TrainJob", "TrainingRuntime", "RayCluster", "ResourceFlavor", "ClusterQueue",
          "LocalQueue", "PodMonitor"}


def kubectl() -> str | None:
    """Returns a kubectl that knows kustomize's components, or None."""
    found = shutil.which("kubectl")
    if found is None:
        return None
    version = subprocess.run([found, "version", "--client", "-o", "json"], capture_output=True, text=True, check=False)
    try:
        kustomize = json.loads(version.stdout)["kustomizeVersion"].removeprefix("v")
    except (ValueError, KeyError):
        return None
    return found if int(kustomize.split(".")[0]) >= 5 else None


def render(overlay: str, directory: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the objects of an overlay. Its tokens are made, since the repository has none."""
    tree = directory / "kubernetes"
    if not tree.exists():
        shutil.copytree(DEPLOY, tree)
        for token in ("base/token", "components/page/page-token"):
            (tree / token).write_text(secrets.token_hex(32) + "\n")
    rendered = subprocess.run([kubectl() or "kubectl", "kustomize", tree / "overlays" / overlay], capture_output=True,
                              text=True, check=False)
    if rendered.returncode != 0:
        raise AssertionError(f"{overlay}: {rendered.stderr}")
    return [one for one in yaml.safe_load_all(rendered.stdout) if one]


def templates(value: Any) -> Iterator[dict[str, Any]]:
    """Yields every pod template within an object."""
    if isinstance(value, dict):
        spec = value.get("spec")
        if isinstance(spec, dict) and "containers" in spec:
            yield value
        for one in value.values():
            yield from templates(one)
    elif isinstance(value, list):
        for one in value:
            yield from templates(one)


def containers(objects: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yields each container of a coordinator or an agent, and the spec of its pod."""
    for one in objects:
        for template in templates(one):
            spec = template["spec"]
            for container in spec.get("initContainers", []) + spec["containers"]:
                if container["name"] in ("coordinator", "cairn-agent"):
                    yield container, spec


def settings(container: dict[str, Any], objects: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Returns the variables of a container whose values the objects hold. Its own count before those of ConfigMaps."""
    data = {one["metadata"]["name"]: one.get("data", {}) for one in objects if one["kind"] == "ConfigMap"}
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        found |= data.get(source.get("configMapRef", {}).get("name"), {})
    return found | {one["name"]: one.get("value", "") for one in container.get("env", [])}


def lacks(objects: list[dict[str, Any]]) -> list[str]:
    """Says what containers of Cairn would miss to use their root and its mirror, or have too much."""
    found = list(containers(objects))
    all_settings = [settings(container, objects) for container, _ in found]
    roots = {one.get("CAIRN_ROOT", "") for one in all_settings}
    if len(roots) != 1 or "" in roots:
        return [f"coordinator and agents have not one root: {sorted(roots)}"]
    (root,) = roots
    (mirror,) = {one.get("CAIRN_MIRROR", "") for (container, _), one in zip(found, all_settings, strict=True)
                 if container["name"] == "coordinator"}
    missing = []
    if "://" in root and any(one["kind"] == "PersistentVolumeClaim" for one in objects):
        missing.append("a claim is left though the root is in a store")
    for (container, spec), variables in zip(found, all_settings, strict=True):
        missing += [f"{container['name']}: {what}"
                    for what in _lacks_of(container, spec, variables, (root, mirror), objects)]
    return missing


def _lacks_of(container: dict[str, Any], spec: dict[str, Any], variables: dict[str, str], places: tuple[str, str],
              objects: list[dict[str, Any]]) -> Iterator[str]:
    names: dict[str, set[str]] = {}
    for one in objects:
        names.setdefault(one["kind"], set()).add(one["metadata"]["name"])
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    for mount in container["volumeMounts"]:
        if mount["name"] not in volumes:
            yield f"no volume {mount['name']}"
    for volume in volumes.values():
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim is not None and claim not in names.get("PersistentVolumeClaim", set()):
            yield f"no claim {claim}"
    sources = container.get("envFrom", [])
    for source in sources:
        wanted = source.get("configMapRef", {}).get("name")
        if wanted is not None and wanted not in names.get("ConfigMap", set()):
            yield f"no ConfigMap {wanted}"
    for place in places:
        if place.startswith("/") and place not in {mount["mountPath"] for mount in container["volumeMounts"]}:
            yield f"nothing is mounted at {place}"
    stores = [place for place in places if "://" in place]
    if not stores:
        return
    # Keys may come from a Secret that the operator makes, or from the account, to which a cloud gives rights.
    if "cairn-store-keys" not in {source.get("secretRef", {}).get("name") for source in sources}:
        yield "no Secret for keys"
    if spec.get("serviceAccountName") not in names.get("ServiceAccount", set()):
        yield "no service account"
    if spec.get("automountServiceAccountToken") is not False:
        yield "a token of Kubernetes' API"
    if any(store.startswith("s3://") for store in stores) and not {"AWS_REGION", "AWS_ENDPOINT_URL"} & set(variables):
        yield "neither a region nor an endpoint"
    mirror = places[1]
    if "CAIRN_ALLOW_UID" in variables and mirror and variables.get("CAIRN_IMPORT_ROOT") != mirror:
        yield f"the agent may not read {mirror}"


def checkable(objects: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The objects as Kubernetes can check them: of other kinds, each pod template as a PodTemplate."""
    for one in objects:
        if one["kind"] not in OTHERS:
            yield one
            continue
        for number, template in enumerate(templates(one)):
            yield {"apiVersion": "v1", "kind": "PodTemplate",
                   "metadata": {"name": f"{one['metadata']['name']}-{number}"}, "template": template}
