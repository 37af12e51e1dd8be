"""Trains torchtitan's debug model of Llama 3 by torchtitan's own trainer; Cairn saves and resumes it.

    cairn run --root /tmp/checkpoints -- \
        torchrun --nproc-per-node 4 examples/torchtitan/train.py --training.steps 40 \
        --parallelism.spmd_backend partial_dtensor --parallelism.tensor_parallel_degree 2

Start it again with more steps, and with another number of ranks or other degrees: it goes on where it ended. What
stands here besides Cairn's line lets torchtitan run without a GPU and without a network.
"""

import pathlib
import sys
from dataclasses import dataclass

import cpu  # noqa: F401  # before torchtitan
import torch
import torchtitan.train
from torch.distributed.checkpoint.stateful import Stateful
from torchtitan.components import metrics
from torchtitan.components.dataloader import ParallelAwareDataloader
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config import TrainingConfig
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

from cairn.torchtitan import CairnCheckpointManager

TEXT = b"Cairns are piles of stones that mark a path. " * 40


class Bytes(BaseTokenizer):
    """Takes each byte for a token."""

    def __init__(self, config: BaseTokenizer.Config, *, tokenizer_path: str):
        super().__init__()

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        return bytes(tokens).decode()

    def get_vocab_size(self) -> int:
        return 256

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass


class Windows(torch.utils.data.IterableDataset, Stateful):
    """Windows of a text, without an end. It goes on where its state says."""

    def __init__(self, length: int, rank: int, ranks: int):
        self.length, self.ranks, self.next = length, ranks, rank

    def __iter__(self):
        while True:
            start = self.next * 7 % (len(TEXT) - self.length)
            self.next += self.ranks
            tokens = torch.tensor(list(TEXT[start:start + self.length + 1]))
            yield {"input": tokens[:-1], "positions": torch.arange(self.length)}, tokens[1:]

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


class Loader(ParallelAwareDataloader):
    @dataclass(kw_only=True, slots=True)
    class Config(ParallelAwareDataloader.Config):
        pass

    def __init__(self, config: Config, *, dp_world_size: int, dp_rank: int, seq_len: int, local_batch_size: int,
                 snapshot_every_n_steps: int | None = 1, **others):
        super().__init__(Windows(seq_len, dp_rank, dp_world_size), dp_rank, dp_world_size,
                         batch_size=local_batch_size, snapshot_every_n_steps=snapshot_every_n_steps)


def debug_model() -> Trainer.Config:
    """Is the configuration that --config names."""
    spec = model_registry("debugmodel")
    for layer in spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()  # the others ask for a GPU
    return Trainer.Config(
        hf_assets_path=".",
        model_spec=spec,
        tokenizer=Bytes.Config(),
        dataloader=Loader.Config(),
        loss=CrossEntropyLoss.Config(global_vocab_size=2048),
        optimizer=default_adamw(lr=8e-4),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=2),
        training=TrainingConfig(local_batch_size=2, seq_len=64, steps=40, disable_cuda_graphs=True,
                                mixed_precision_param="float32"),
        metrics=metrics.MetricsProcessor.Config(log_freq=1),
        # This is the line that changes: it was torchtitan's CheckpointManager.Config.
        checkpoint=CairnCheckpointManager.Config(enable=True, interval=10, last_save_model_only=False),
    )


def main() -> None:
    sys.path.insert(0, str(pathlib.Path(__file__).parent))  # where --module is looked for
    sys.argv[1:1] = ["--module", "train", "--config", "debug_model"]
    torchtitan.train.main()


if __name__ == "__main__":
    main()
