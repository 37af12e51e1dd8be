"""A Ceph of one process of each kind, with its object gateway: the object store of many clusters that are no cloud."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import subprocess
import time
import uuid

from stores.server import wait_until_served
from testing.ports import reserve_port

PROGRAMS = ("ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")

_CONFIGURATION = """\
[global]
fsid = {fsid}
mon_host = v2:127.0.0.1:{port}
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_mon_client_mode = crc
run_dir = {directory}
pid_file = {directory}/$type.$id.pid
admin_socket = {directory}/$type.$id.asok
log_file = {directory}/$type.$id.log
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_data = {directory}/mon
mgr_data = {directory}/mgr
mgr_initial_modules =
osd_data = {directory}/osd
osd_objectstore = memstore
memstore_device_bytes = {memory}
rgw_data = {directory}/rgw
rgw_frontends = beast endpoint=127.0.0.1:{gateway} {frontend}
rgw_enable_usage_log = false
"""


def why_not() -> str | None:
    """Says why no Ceph can be started here; None if one can be."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"{', '.join(missing)} not installed (tools/install_packages stores)" if missing else None


class Ceph:
    """`endpoint` is the address of the gateway, "http://127.0.0.1:PORT"; `log` has a line for each of its requests."""

    def __init__(self, directory: pathlib.Path, gateway: int):
        self.endpoint = f"http://127.0.0.1:{gateway}"
        self.log = directory / "client.rgw.log"
        self._configuration = directory / "ceph.conf"

    def command(self, program: str, *arguments: str) -> str:
        """Runs a program of Ceph to its end, and returns what it prints."""
        command = [program, "--conf", self._configuration, *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, (program, arguments, result.stdout, result.stderr)
        return result.stdout

    def make_user(self, name: str, access: str, secret: str) -> None:
        self.command("radosgw-admin", "user", "create", f"--uid={name}", f"--display-name={name}",
                     f"--access-key={access}", f"--secret-key={secret}")


@contextlib.contextmanager
def ceph(directory: pathlib.Path, memory: int = 4 << 30, frontend: str = ""):
    """Yields a Ceph that keeps what it is given in memory, at most so many bytes. It takes about twenty seconds to
    start. `frontend` is what the gateway is told of its connections besides the address."""
    monitor, gateway = reserve_port(), reserve_port()
    with contextlib.ExitStack() as stack:
        stack.enter_context(monitor)
        stack.enter_context(gateway)
        port = gateway.getsockname()[1]
        served = Ceph(directory, port)
        identity = str(uuid.uuid4())
        for name in ("mon", "mgr", "osd", "rgw"):
            (directory / name).mkdir()
        (directory / "ceph.conf").write_text(_CONFIGURATION.format(
            fsid=identity, port=monitor.getsockname()[1], directory=directory, gateway=port,
            memory=memory, frontend=frontend))

        def start(program: str, *arguments: str) -> None:
            with open(directory / f"{program}.out", "wb") as log:
                process = subprocess.Popen([program, "--conf", directory / "ceph.conf", "--foreground", *arguments],
                                           stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)

        monitors = directory / "monmap"
        served.command("monmaptool", "--create", "--clobber", "--fsid", identity,
                       "--addv", "a", f"[v2:127.0.0.1:{monitor.getsockname()[1]}]", str(monitors))
        served.command("ceph-mon", "--mkfs", "--id", "a", "--monmap", str(monitors))
        start("ceph-mon", "--id", "a")
        start("ceph-mgr", "--id", "x")
        disk = str(uuid.uuid4())
        served.command("ceph", "--connect-timeout", "60", "osd", "new", disk, "0")
        served.command("ceph-osd", "--mkfs", "--id", "0", "--osd-uuid", disk)
        start("ceph-osd", "--id", "0")
        end = time.monotonic() + 120
        while '"num_up_osds":1' not in served.command("ceph", "osd", "stat", "--format", "json").replace(" ", ""):
            assert time.monotonic() < end, "the osd of Ceph did not start"
            time.sleep(0.2)
        start("radosgw", "--id", "rgw")
        wait_until_served("127.0.0.1", port, seconds=120)
        yield served
