"""Saves and loads state dicts of PyTorch: nested dicts of tensors, DTensors and plain values.

    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    model_state, optimizer_state = get_state_dict(model, optimizer)
    cairn.torch.save(client, step, {"model": model_state, "optimizer": optimizer_state}).wait()

The keys of dicts with tensors become one name, joined by "."; a load fills the same dicts in place, so their keys, the
types of these and their order stay. A dict or list without tensors is one value, which a load replaces as a whole.
A tensor that is no DTensor is whole and the same on all ranks, as for torch.distributed.checkpoint.
Everything that is no tensor becomes an object that is the same on all ranks; wrap it in cairn.per_rank where it is not.
CheckpointManager saves models, optimizers and data loaders while they train, when it is due.
"""

from cairn.torch._state_dict.safetensors import load_safetensors
from cairn.torch._state_dict.save_load import load, prepare, save
from cairn.torch._tensors.dtensor_boxes import boxes_of
from cairn.torch._tensors.tensor_serializer import register as _register_small_tensors
from cairn.torch._training.checkpoint_manager import CheckpointManager
from cairn.torch._training.fingerprints import fingerprint
from cairn.torch._training.rng import rng_state, set_rng_state

__all__ = ["CairnReader", "CairnWriter", "CheckpointManager", "boxes_of", "fingerprint", "load", "load_safetensors",
           "prepare", "rng_state", "save", "set_rng_state"]

_register_small_tensors()


def __getattr__(name: str) -> object:
    """Imports torch.distributed.checkpoint only where it is used."""
    if name in ("CairnReader", "CairnWriter"):
        from cairn.torch import dcp

        return getattr(dcp, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
