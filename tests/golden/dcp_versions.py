"""Has written dcp_versions: what torch.distributed.checkpoint of PyTorch 2.4 to 2.15 saves on two ranks.

    python dcp_versions.py SOURCES DIRECTORY     # with PyTorch 2.13; it starts the ranks itself

SOURCES/VERSION/torch/distributed/checkpoint are the sources of these versions, as their wheels have them:

    pip download torch==VERSION --no-deps --only-binary=:all: --platform macosx_11_0_arm64 --python-version 3.11

Each version's own checkpoint package runs on the rest of PyTorch 2.13, so its own classes are pickled by its own code.
"""

import importlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch

WORLD = 2
# By directory of dcp_versions. Between the first and the last one of a line, the files that say the format are equal.
VERSIONS = {"2.4": "2.4.1", "2.5": "2.5.1", "2.6": "2.6.0", "2.7": "2.7.1", "2.8": "2.8.0", "2.9": "2.9.1",
            "2.10": "2.10.0", "2.11": "2.11.0", "2.12": "2.12.1", "2.14": "2.14.1", "2.15": "2.15.0"}


def state():
    """What the directories hold but for the Counter, as it is on one rank that has everything."""
    def values(shape, dtype, number):
        count = torch.Size(shape).numel()
        return ((torch.arange(count) * 7 + number) % 113).to(dtype).reshape(shape)

    return {
        "model": {"rows": values((5, 3), torch.float32, 1), "columns": values((4, 6), torch.bfloat16, 2),
                  "whole": values((3,), torch.float64, 3), "flags": values((4,), torch.bool, 4),
                  "transposed": values((2, 5), torch.int16, 5).t(), "empty": torch.zeros(0, 3),
                  "scalar": values((), torch.int64, 6)},
        "optimizer": {"state": {0: {"step": values((), torch.float32, 7)}},
                      "param_groups": [{"lr": 0.1, "betas": (0.9, 0.95), "params": [0, 1]}]},
        "progress": {"step": 7, "name": "é", "none": None, "bytes": b"\x00\xff"},
    }


class Counter:
    """An object of a program's own class, which stands pickled as progress.stateful in each directory."""

    def state_dict(self):
        return {"epoch": 3}

    def load_state_dict(self, state_dict):
        raise NotImplementedError


def save(package, directory):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    # The package of the other version takes the place of this one's.
    dist.__path__.insert(0, package)
    for name in [name for name in sys.modules if name.startswith("torch.distributed.checkpoint")]:
        del sys.modules[name]
    dcp = importlib.import_module("torch.distributed.checkpoint")
    assert pathlib.Path(dcp.__file__).is_relative_to(package), dcp.__file__
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (WORLD,))
    given = state()
    given["model"]["rows"] = distribute_tensor(given["model"]["rows"], mesh, [Shard(0)])
    given["model"]["columns"] = distribute_tensor(given["model"]["columns"], mesh, [Shard(1)])
    given["progress"]["stateful"] = Counter()
    dcp.save(given, checkpoint_id=directory)
    dist.destroy_process_group()


def main() -> None:
    sources, output = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    if len(sys.argv) > 3:
        save(sys.argv[3], "dcp")
        return
    for name, version in VERSIONS.items():
        package = sources / version / "torch" / "distributed"
        with tempfile.TemporaryDirectory() as work:
            # The checkpoint's own path stands in its metadata, so it is a relative one.
            environment = {**os.environ, "WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517",
                           "GLOO_SOCKET_IFNAME": "lo"}
            ranks = [subprocess.Popen([sys.executable, __file__, sources, output, package], cwd=work,
                                      env={**environment, "RANK": str(rank)}) for rank in range(WORLD)]
            if any([rank.wait() for rank in ranks]):
                sys.exit(f"error: {version} failed")
            shutil.rmtree(output / name, ignore_errors=True)
            shutil.copytree(pathlib.Path(work) / "dcp", output / name)
        print(name, sorted(path.name for path in (output / name).iterdir()))


if __name__ == "__main__":
    main()
