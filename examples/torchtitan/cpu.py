"""Lets torchtitan run on the host's processors with gloo, and on PyTorch 2.13. Import it before torchtitan.

It takes away what torchtitan asks a GPU for: its memory, its barriers, and reductions that gloo does not have.
"""

import inspect

import cpu_device  # noqa: F401  # before torchtitan
import torch
import torchtitan.distributed.fsdp
import torchtitan.distributed.utils
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining.schedules import PipelineScheduleSingle
from torchtitan.components import metrics


class NoMemoryMonitor:
    device_name = "cpu"

    def get_peak_stats(self):
        return metrics.DeviceMemStats(0, 0, 0, 0, 0, 0)

    def reset_peak_stats(self):
        pass


def sum_gradients(model: torch.nn.Module) -> None:
    """Has FSDP sum gradients without dividing them, as torchtitan wants it, and by a sum as gloo has it."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def step(schedule: PipelineScheduleSingle, *, arg_mbs, kwarg_mbs, target_mbs, losses, loss_kwargs, return_outputs):
    """Takes microbatches, which the schedules of PyTorch 2.13 cut themselves."""
    schedule._stage.has_backward = True
    schedule._stage.clear_runtime_states()
    schedule._step_microbatches(arg_mbs, kwarg_mbs, target_mbs, losses, return_outputs, loss_kwargs=loss_kwargs)


metrics.build_device_memory_monitor = NoMemoryMonitor
torchtitan.distributed.fsdp.disable_fsdp_gradient_division = sum_gradients
torchtitan.distributed.utils.set_pg_timeouts = lambda **arguments: None
if "arg_mbs" not in inspect.signature(PipelineScheduleSingle.step).parameters:
    PipelineScheduleSingle.step = step
