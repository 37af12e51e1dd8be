"""Tells torchtitan, when it is imported afterwards, that this machine's device is its processors: it takes a machine
without a GPU for one with CUDA."""

import torch

torch._utils._get_available_device_type = lambda: "cpu"
