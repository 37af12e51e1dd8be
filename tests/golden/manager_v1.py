"""Has written manager_v1, and says what stands in it. The version of Cairn that it ran with stored each item of a dict
of values under a name of its own, named the tensors of optimizers by numbers, and stored extra states as tensors.

    python manager_v1.py DIRECTORY        # a version that names them otherwise writes something else
"""

import sys

import torch

import cairn
from cairn.torch import CheckpointManager

STEP = 7


class Layer(torch.nn.Module):
    def __init__(self, extra):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(2.0))
        self.extra = extra

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, value):
        self.extra = value


def fresh(extra):
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), Layer(extra))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 80])


def trained():
    model, optimizer, scheduler = fresh(torch.arange(3, dtype=torch.uint8))
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] = 0.125
    scheduler.base_lrs = [0.125]
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.5, -1.0]]))
        model[0].bias.fill_(0.25)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 2.0)
    optimizer.step()
    scheduler.step()
    return model, optimizer, scheduler


def values():
    return {"progress": {"done": {"a.jsonl": 10, "b": 3}, "n": 7}, "seen": [{"x": 1}], "none": {}}


if __name__ == "__main__":
    with cairn.local.Cluster(ranks=1, root=sys.argv[1]) as cluster, cluster.connect(0) as client:
        with CheckpointManager(client, every_steps=1) as manager:
            model, optimizer, scheduler = trained()
            manager.step(STEP, {"model": model, "optimizer": optimizer, "scheduler": scheduler, **values()})
