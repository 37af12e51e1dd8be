"""Trains a tiny language model with layers of Megatron-core; Cairn saves and resumes its sharded state dict.

    cairn run --root /tmp/checkpoints -- torchrun --nproc-per-node 2 examples/megatron/train.py --tensor 2 --steps 40

Start it again with more steps, and with another number of ranks or of parts: it goes on where it ended. It needs no
GPU, for which Megatron's own layers of attention ask.
"""

import argparse

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.optimizer.optimizer import FP32Optimizer, MegatronOptimizer
from megatron.core.optimizer.optimizer_config import OptimizerConfig
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_config import TransformerConfig

import cairn
from cairn.torch import megatron

TEXT = b"Cairns are piles of stones that mark a path. " * 40
WIDTH, CONTEXT, BATCH = 32, 32, 16


class Model(MegatronModule):
    """Guesses a byte from the one before."""

    def __init__(self, config: TransformerConfig):
        super().__init__(config)
        common = {"config": config, "init_method": config.init_method}
        self.embedding = tensor_parallel.VocabParallelEmbedding(256, WIDTH, **common)
        self.expand = tensor_parallel.ColumnParallelLinear(WIDTH, 2 * WIDTH, **common)
        self.contract = tensor_parallel.RowParallelLinear(2 * WIDTH, WIDTH, bias=True, input_is_parallel=True,
                                                          skip_bias_add=False, **common)
        self.head = tensor_parallel.ColumnParallelLinear(WIDTH, 256, bias=False, **common)

    def forward(self, tokens, targets):
        hidden = self.embedding(tokens)
        hidden = hidden + self.contract(torch.nn.functional.gelu(self.expand(hidden)[0]))[0]
        return tensor_parallel.vocab_parallel_cross_entropy(self.head(hidden)[0], targets).mean()


def batch_of_step(step: int) -> torch.Tensor:
    """Returns the whole batch of a step, [BATCH, CONTEXT + 1]. It depends on nothing but the step."""
    starts = torch.randint(len(TEXT) - CONTEXT, (BATCH,), generator=torch.Generator().manual_seed(step))
    return torch.stack([torch.tensor(list(TEXT[start:start + CONTEXT + 1])) for start in starts.tolist()])


class Optimizer(FP32Optimizer):
    """Megatron's optimizer of parameters in float32, whose constructor asks for a GPU."""

    def __init__(self, model: Model):
        # By these entries Megatron finds its groups again.
        group = {"params": list(model.parameters()), "wd_mult": 1.0, "lr_mult": 1.0, "is_expert_parallel": False,
                 "is_decoupled_lr": False}
        MegatronOptimizer.__init__(self, torch.optim.AdamW([group], lr=1e-2, foreach=False),
                                   OptimizerConfig(clip_grad=0.0), make_state)
        self.is_stub_optimizer = False


def make_state(optimizer: torch.optim.Optimizer, config: OptimizerConfig) -> None:
    """Gives a fresh optimizer the tensors that a load fills."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = {"step": torch.zeros(()), "exp_avg": torch.zeros_like(parameter),
                                          "exp_avg_sq": torch.zeros_like(parameter)}


def sharded_state(model: Model, optimizer: Optimizer, is_loading: bool = False) -> dict:
    model_state = model.sharded_state_dict()
    return {"model": model_state, "optimizer": optimizer.sharded_state_dict(model_state, is_loading)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-steps", type=int, default=10)
    parser.add_argument("--tensor", type=int, default=1, help="parts of a layer")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=arguments.tensor)
    data, data_rank = parallel_state.get_data_parallel_world_size(), parallel_state.get_data_parallel_rank()
    model = Model(TransformerConfig(num_layers=1, hidden_size=WIDTH, num_attention_heads=4,
                                    tensor_model_parallel_size=arguments.tensor, use_cpu_initialization=True))
    optimizer = Optimizer(model)

    with cairn.connect() as client:
        step = 0
        if client.checkpoints():
            state = megatron.load(client, sharded_state(model, optimizer, is_loading=True))
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            step = state["iteration"]
        saving = None
        while step < arguments.steps:
            mine = batch_of_step(step).chunk(data)[data_rank]
            loss = model(mine[:, :-1], mine[:, 1:])
            loss.backward()
            for value in (loss.detach_(), *(parameter.grad for parameter in model.parameters())):
                dist.all_reduce(value.div_(data), group=parallel_state.get_data_parallel_group())
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if dist.get_rank() == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            client.report_step(step)
            if client.save_requested() == step or step % arguments.save_steps == 0:
                saving = megatron.save(client, step, sharded_state(model, optimizer) | {"iteration": step})
        if saving is not None:
            saving.wait()
        if dist.get_rank() == 0:
            print(f"trained to step {step}; the job has the steps {client.checkpoints()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
