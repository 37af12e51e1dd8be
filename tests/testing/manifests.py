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
OTHERS = {"JobSet", "PyTorchJob", "TrainJob", "TrainingRuntime", "ResourceFlavor", "ClusterQueue", "LocalQueue"}


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
    """Returns the objects of an overlay. Its token is made, since the repository has none."""
    tree = directory / "kubernetes"
    if not tree.exists():
        shutil.copytree(DEPLOY, tree)
        (tree / "base/token").write_text(secrets.token_hex(32) + "\n")
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


def checkable(objects: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The objects as Kubernetes can check them: of other kinds, each pod template as a PodTemplate."""
    for one in objects:
        if one["kind"] not in OTHERS:
            yield one
            continue
        for number, template in enumerate(templates(one)):
            yield {"apiVersion": "v1", "kind": "PodTemplate",
                   "metadata": {"name": f"{one['metadata']['name']}-{number}"}, "template": template}
