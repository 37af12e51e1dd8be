"""Checkpointing mechanisms for DLIO: Cairn and torch.distributed.checkpoint.

DLIO makes the state and calls save_checkpoint() and load_checkpoint(). Each tensor of a rank is its part of one tensor
of the job, cut along the only axis, as ZeRO cuts it. So both see a sharded state, and not a file for each rank. A save
has ended when all bytes of all ranks are on disk.
"""

from __future__ import annotations

import os

import torch
from dlio_benchmark.checkpointing.pytorch_checkpointing import PyTorchCheckpointing


class ShardedCheckpointing(PyTorchCheckpointing):
    """Names what DLIO has made. DLIO asks each class for its one instance."""

    _instance = None

    @classmethod
    def get_instance(cls):
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def tensors(self) -> dict[str, torch.Tensor]:
        named = {f"layers.{layer}.{index}": tensor for layer, state in (self.layer_state or {}).items()
                 for index, tensor in state.items()}
        named.update({f"optimizer.{index}": tensor for index, tensor in (self.optimization_state or {}).items()})
        return named

    def folder(self, step: int) -> str:
        """DLIO counts these before it lets anybody load."""
        name = f"global_epoch1_step{step}"
        self.checkpoint_storage.create_node(name, exist_ok=True)
        return os.path.join(self.args.checkpoint_folder, name)

    def empty(self) -> None:
        """If this run only loads: what a load does not fill would be taken for loaded."""
        if self.args.num_checkpoints_write <= 0:
            for tensor in self.tensors().values():
                tensor.zero_()

    def check(self) -> None:
        """DLIO's random numbers are no zeros."""
        for name, tensor in self.tensors().items():
            if not tensor[:1024].any() or not tensor[-1024:].any():
                raise RuntimeError(f"rank {self.args.my_rank}: {name} was not loaded")


class CairnCheckpointing(ShardedCheckpointing):
    """The agents' addresses stand in CAIRN_DLIO_AGENTS, by rank, with commas between them."""

    def __init__(self):
        super().__init__()
        self.empty()
        import cairn
        self._client = cairn.connect(os.environ["CAIRN_DLIO_AGENTS"].split(",")[self.args.my_rank])

    def _state(self):
        import cairn
        rank, world = self.args.my_rank, self.args.comm_size
        return {name: cairn.Shard(tensor.numpy(), [len(tensor) * world], [len(tensor) * rank])
                for name, tensor in self.tensors().items()}

    def save_checkpoint(self, epoch, step_number):
        self.folder(step_number)
        self._client.save(step_number, self._state()).wait()

    def load_checkpoint(self, epoch, step_number):
        self._client.load(self._state(), step=step_number)
        self.check()


class DcpCheckpointing(ShardedCheckpointing):
    """torch.distributed.checkpoint with a file for each rank, which it syncs."""

    def __init__(self):
        super().__init__()
        self.empty()
        from torch import distributed
        distributed.init_process_group("gloo", init_method=os.environ["DLIO_RENDEZVOUS"], rank=self.args.my_rank,
                                       world_size=self.args.comm_size)
        self._mesh = distributed.device_mesh.init_device_mesh("cpu", (self.args.comm_size,))

    def _state(self):
        from torch.distributed.tensor import DTensor
        from torch.distributed.tensor import Shard as ShardPlacement
        return {name: DTensor.from_local(tensor, self._mesh, [ShardPlacement(0)], run_check=False)
                for name, tensor in self.tensors().items()}

    def save_checkpoint(self, epoch, step_number):
        from torch.distributed import checkpoint
        checkpoint.save(self._state(), storage_writer=checkpoint.FileSystemWriter(self.folder(step_number),
                                                                                  sync_files=True))

    def load_checkpoint(self, epoch, step_number):
        from torch.distributed import checkpoint
        checkpoint.load(self._state(), storage_reader=checkpoint.FileSystemReader(self.folder(step_number)))
        self.check()

    def finalize(self):
        super().finalize()
        from torch import distributed
        distributed.destroy_process_group()
