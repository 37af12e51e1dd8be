"""Saves and loads state dicts of PyTorch: nested dicts of tensors, DTensors and plain values.

    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    model_state, optimizer_state = get_state_dict(model, optimizer)
    cairn.torch.save(client, step, {"model": model_state, "optimizer": optimizer_state}).wait()

Keys become one name, joined by "."; a load fills the same nested dict in place, so its keys, their types and their
order stay. A tensor that is no DTensor is whole and the same on all ranks, as for torch.distributed.checkpoint.
Everything that is no tensor becomes an object that is the same on all ranks; wrap it in cairn.per_rank where it is not.
"""

from cairn.torch._boxes import boxes_of
from cairn.torch._calls import load, prepare, save

__all__ = ["boxes_of", "load", "prepare", "save"]
