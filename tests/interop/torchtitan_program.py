"""Is examples/torchtitan/train.py for example_worker.py. Each rank prints the losses to their last bit, and how long a
call of the checkpoint manager took that saved nothing.

The first argument may be --own: torchtitan's own checkpoint manager is in the configuration then.
"""

import pathlib
import runpy
import sys
import time
import types

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/torchtitan"
sys.path.insert(0, str(EXAMPLE))
example = runpy.run_path(str(EXAMPLE / "train.py"))

import torchtitan.train
from torchtitan.components.checkpointer import CheckpointManager
from torchtitan.components.checkpointer.base import BaseCheckpointManager
from torchtitan.components.metrics import MetricsProcessor

log, save = MetricsProcessor.log, BaseCheckpointManager.save


def tell_loss(self, step, loss, largest, grad_norm, extra_metrics=None):
    print(f"\nstep {step} loss {float(loss).hex()}", flush=True)
    log(self, step, loss, largest, grad_norm, extra_metrics)


def measured_save(self, curr_step, last_step=False):
    began = time.perf_counter()
    saves = save(self, curr_step, last_step)
    if not saves:
        print(f"\nidle {time.perf_counter() - began:.6f}", flush=True)
    return saves


def own_manager():
    config = example["debug_model"]()
    config.checkpoint = CheckpointManager.Config(enable=True, last_save_model_only=False)
    return config


def main() -> None:
    MetricsProcessor.log = tell_loss
    BaseCheckpointManager.save = measured_save
    if sys.argv[1] != "--own":
        example["main"]()
        return
    sys.modules["own"] = types.ModuleType("own")
    sys.modules["own"].own_manager = own_manager
    sys.argv[1:2] = ["--module", "own", "--config", "own_manager"]
    torchtitan.train.main()
