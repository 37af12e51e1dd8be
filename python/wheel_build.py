"""Is Hatchling's hook, and does what pyproject.toml cannot say about the wheel."""

import os
import pathlib
import sysconfig

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAMS = ("cairn", "cairn-agent", "cairn-coordinator", "cairn-gpu-worker")


class WheelBuild(BuildHookInterface):
    def initialize(self, version, build_data):
        # tools/package names another directory for the wheels that run on any Linux.
        dist = os.environ.get("CAIRN_DIST", "dist")
        built = pathlib.Path(self.root, dist, "python/cairn/_version.py")
        if not built.exists():
            raise FileNotFoundError(f"{built} is missing: run tools/build first")
        include = build_data["force_include"]
        include[f"{dist}/python/cairn"] = "cairn"
        include["python/_cairn_programs.py"] = "_cairn_programs.py"
        for program in PROGRAMS:
            include[f"{dist}/bin/{program}"] = f"cairn/_bin/{program}"
        # The wheel has programs and a library of one kind of machine, for any Python 3.
        build_data["pure_python"] = False
        machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = "py3-none-" + os.environ.get("CAIRN_WHEEL_PLATFORM", machine)
        # The licences of the libraries that the wheel carries, and their list.
        if licenses := os.environ.get("CAIRN_WHEEL_LICENSES"):
            include[licenses] = "cairn/_licenses"
        if sbom := os.environ.get("CAIRN_WHEEL_SBOM"):
            build_data["sbom_files"].append(sbom)
