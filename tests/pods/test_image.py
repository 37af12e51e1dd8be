"""Tests the image of several processors that tools/image makes of portable wheels, with small programs in these."""

import json
import os
import pathlib
import platform
import secrets
import subprocess
import zipfile

import pytest

from testing import manifests, podman

REASON = podman.why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"not run: {REASON}")

PROGRAMS = ("cairn", "cairn-agent", "cairn-coordinator", "cairn-gpu-worker")
SOURCE = """
#include <math.h>
#include <netdb.h>
#include <stdio.h>
int main(int argc, char** argv) {
  struct addrinfo* found = 0;
  const int failed = getaddrinfo("localhost", "7420", 0, &found);
  printf("%s %g %d\\n", argv[0], sqrt(argc + 3), failed);
  return failed;
}
"""
# What the kernel starts a program by.
LOADERS = {"amd64": ("x86_64", "lib64/ld-linux-x86-64.so.2", "Advanced Micro Devices X86-64"),
           "arm64": ("aarch64", "lib/ld-linux-aarch64.so.1", "AArch64")}


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """Returns the name of an image of two wheels. The programs are this processor's in both."""
    directory = tmp_path_factory.mktemp("wheels")
    (directory / "program.c").write_text(SOURCE)
    run("gcc", "-o", directory / "program", directory / "program.c", "-lm")
    options = []
    for processor, _, _ in LOADERS.values():
        wheel = directory / f"cairn_checkpoint-0-py3-none-manylinux_2_28_{processor}.whl"
        with zipfile.ZipFile(wheel, "w") as file:
            for name in PROGRAMS:
                file.write(directory / "program", f"cairn/_bin/{name}")
        options += ["--wheel", wheel]
    name = f"localhost/cairn-test-{secrets.token_hex(3)}:1"
    assert run(manifests.REPOSITORY / "tools/image", "--tag", name, *options).strip() == name
    yield name
    run("buildah", "manifest", "rm", name)
    run("buildah", "rmi", *[f"{name}-{architecture}" for architecture in LOADERS])


def test_list_has_an_image_for_each_processor(image):
    listed = json.loads(run("buildah", "manifest", "inspect", image))["manifests"]
    assert {one["platform"]["architecture"] for one in listed} == set(LOADERS)
    for architecture in LOADERS:
        configuration = json.loads(run("buildah", "inspect", "--type", "image", f"{image}-{architecture}"))["OCIv1"]
        assert configuration["architecture"] == architecture
        assert configuration["config"]["User"] == "7421:7421"


@pytest.mark.parametrize("architecture", LOADERS)
def test_image_has_the_c_library_of_its_processor(architecture, image):
    processor, loader, machine = LOADERS[architecture]
    container = run("buildah", "from", "--arch", architecture, f"{image}-{architecture}").strip()
    try:
        root = pathlib.Path(run("buildah", "mount", container).strip())
        # Its links begin at its own root.
        target = os.readlink(root / "usr" / loader)
        for library in (target.lstrip("/"), f"usr/lib/{processor}-linux-gnu/libc.so.6"):
            assert machine in run("readelf", "--file-header", (root / library).resolve())
        assert {path.name for path in (root / "usr/bin").iterdir()} == set(PROGRAMS)
        assert not (root / "usr/bin/sh").exists()
        assert (root / "etc/ssl/certs/ca-certificates.crt").stat().st_size > 0
    finally:
        run("buildah", "rm", container)


def test_image_runs_its_programs(image, tmp_path):
    settings = tmp_path / "containers.conf"
    podman.write_settings(settings)
    (own,) = [architecture for architecture, (processor, _, _) in LOADERS.items() if processor == platform.machine()]
    done = subprocess.run(["podman", "run", "--rm", "--network", "none", f"{image}-{own}", "/usr/bin/cairn"],
                          capture_output=True, text=True, check=False,
                          env={**os.environ, "CONTAINERS_CONF": str(settings)})
    assert done.stdout.strip() == "/usr/bin/cairn 2 0", done.stderr


def test_wheel_that_is_not_portable_is_refused(tmp_path):
    wheel = tmp_path / "cairn_checkpoint-0-py3-none-manylinux_2_36_x86_64.whl"
    wheel.touch()
    done = subprocess.run([manifests.REPOSITORY / "tools/image", "--tag", "localhost/cairn-no:1", "--wheel", wheel],
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "is no portable wheel" in done.stderr, done.stderr
