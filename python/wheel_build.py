"""Is Hatchling's hook, and does what pyproject.toml cannot say about the wheel."""

import os
import pathlib
import sysconfig

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelBuild(BuildHookInterface):
    def initialize(self, version, build_data):
        built = pathlib.Path(self.root, "dist/python/cairn/_version.py")
        if not built.exists():
            raise FileNotFoundError(f"{built} is missing: run tools/build first")
        # The wheel has programs and a library of this machine, for any Python 3. tools/package replaces `linux_x86_64`
        # by the oldest manylinux that they run on.
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
        # The licences of the libraries that tools/package copies into the wheel.
        if licenses := os.environ.get("CAIRN_WHEEL_LICENSES"):
            build_data["force_include"][licenses] = "cairn/_licenses"
