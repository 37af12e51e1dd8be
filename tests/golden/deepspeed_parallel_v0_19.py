"""Has written deepspeed_parallel_v0_19, by DeepSpeed 0.19.8 and PyTorch 2.13 on four ranks.

    python deepspeed_parallel_v0_19.py DIRECTORY      # with deepspeed installed; it starts the ranks itself

Each directory holds a checkpoint of a model that is cut by tensor parallelism, by pipeline parallelism or by both, and
the safetensors file of its name what DeepSpeed's own `ds_to_universal` makes of the trained weights.
"""

import os
import pathlib
import shutil
import subprocess
import sys

# By directory: stages of the pipeline (0: no pipeline), parts of each tensor, ranks with the same part, stage of ZeRO.
KINDS = {
    "pipeline": (2, 1, 2, 1),
    "grid": (2, 2, 1, 1),
    "tensor2": (0, 2, 2, 2),
    "tensor3": (0, 2, 2, 3),
}
# What a program with tensor parallelism says about its parameters, as Megatron-DeepSpeed does.
INFO = {
    "universal_checkpoint_version": 0.2,
    "vocabulary_parameter_patterns": [r".*embed.*\.weight$"],
    "original_vocab_size": 11,
    "tp_replicated_parameter_patterns": [r".*norm\.(weight|bias)$", r".*down\.bias$"],
    "parameter_with_row_parallelism_patterns": [r".*down\.weight$"],
    "parameter_with_2_sub_params_cat_dim_0": [r".*gated\.weight$"],
    "parameter_with_sub_params": [{"patterns": [r".*fused\.weight$"], "shape": (3, -1), "partition_dim": 0},
                                  {"patterns": [r".*across\.weight$"], "shape": (6, (4, 8)), "partition_dim": 1}],
}


def train(directory, kind):
    import deepspeed
    import torch
    from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

    stages, parts, replicas, zero = KINDS[kind]
    deepspeed.init_distributed("gloo")
    rank = torch.distributed.get_rank()
    # Ranks that are neighbours have the parts of one tensor.
    groups = [torch.distributed.new_group(range(first, first + parts)) for first in range(0, 4, parts)]
    part, part_group = rank % parts, groups[rank // parts]

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(context, value):
            value = value.clone()
            torch.distributed.all_reduce(value, group=part_group)
            return value

        @staticmethod
        def backward(context, gradient):
            return gradient

    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(context, value):
            return value

        @staticmethod
        def backward(context, gradient):
            gradient = gradient.clone()
            torch.distributed.all_reduce(gradient, group=part_group)
            return gradient

    def linear(inputs, outputs, bias=True):
        layer = torch.nn.Linear(inputs, outputs, bias=bias)
        with torch.no_grad():  # so that parts differ
            layer.weight.add_(0.01 * part)
        return layer

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(6)
            self.up = linear(6, 10 // parts)
            self.fused = linear(6, 12 // parts, bias=False)
            self.gated = linear(6, 8 // parts, bias=False)
            self.across = linear(12 // parts, 6, bias=False)
            self.down = linear(30 // parts, 6, bias=False)
            self.down.bias = torch.nn.Parameter(torch.zeros(6))
            self.register_buffer("scale", torch.arange(6.0) / 8)

        def forward(self, hidden):
            inner = Copy.apply(self.norm(hidden))
            fused, gated = self.fused(inner), self.gated(inner)
            wide = torch.cat([self.up(inner), fused, gated], dim=-1)
            down = torch.nn.functional.linear(wide, self.down.weight) + self.across(fused)
            return hidden + (Sum.apply(down) + self.down.bias) * self.scale.to(hidden.dtype)

    class Embedding(torch.nn.Module):
        """A part of the rows of a vocabulary that is padded to 12."""

        def __init__(self):
            super().__init__()
            self.rows = 12 // parts
            self.weight = torch.nn.Parameter(torch.randn(self.rows, 6))

        def forward(self, tokens):
            local = tokens - part * self.rows
            outside = (local < 0) | (local >= self.rows)
            found = torch.nn.functional.embedding(local.masked_fill(outside, 0), self.weight)
            return Sum.apply(found.masked_fill(outside[..., None], 0))

    def logits(embedding, hidden):
        return Sum.apply(Copy.apply(hidden) @ embedding.weight.T)

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = Embedding()
            self.first = Block()
            self.second = Block()
            self.frozen = linear(6, 4)
            self.frozen.requires_grad_(False)

        def forward(self, tokens):
            hidden = self.second(self.first(self.embed(tokens)))
            return (logits(self.embed, hidden).float().square().mean() +
                    self.frozen(Copy.apply(hidden)).float().square().mean())

    torch.manual_seed(10 * part)
    config = {
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": zero, "stage3_param_persistence_threshold": 0, "sub_group_size": 50}}
    if stages:
        topology = PipeModelDataParallelTopology(num_pp=stages, num_mp=parts, num_dp=replicas)
        model = PipelineModule(
            layers=[TiedLayerSpec("embed", Embedding, tied_weight_attr="weight"), LayerSpec(Block), LayerSpec(Block),
                    lambda hidden: hidden * 2, LayerSpec(Block),
                    TiedLayerSpec("embed", Embedding, forward_fn=logits, tied_weight_attr="weight")],
            topology=topology, partition_method="uniform",
            loss_fn=lambda output, wanted: (output.float() - 1).square().mean())
        mpu = None
    else:
        model = Whole()
        replica_groups = [torch.distributed.new_group(range(first, 4, parts)) for first in range(parts)]

        class Grid:
            """What DeepSpeed asks Megatron's `mpu`."""
            get_model_parallel_rank = get_tensor_model_parallel_rank = staticmethod(lambda: part)
            get_model_parallel_world_size = get_tensor_model_parallel_world_size = staticmethod(lambda: parts)
            get_model_parallel_group = get_tensor_model_parallel_group = staticmethod(lambda: part_group)
            get_data_parallel_rank = staticmethod(lambda: rank // parts)
            get_data_parallel_world_size = staticmethod(lambda: replicas)
            get_data_parallel_group = staticmethod(lambda: replica_groups[part])
        mpu = Grid()
    with torch.no_grad():  # what is no part of a tensor is the same in all of them
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.125)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, mpu=mpu, config=config)

    def batches():
        generator = torch.Generator().manual_seed(rank // parts)
        while True:
            tokens = torch.randint(0, 11, (2, 3), generator=generator)
            yield tokens, tokens
    data = batches()
    for _ in range(2):
        if stages:
            engine.train_batch(data_iter=data)
        else:
            engine.backward(engine(next(data)[0]))
            engine.step()
    engine.save_checkpoint(directory, tag="global_step2", client_state={"universal_checkpoint_info": INFO,
                                                                        "iteration": 2})
    torch.distributed.barrier()
    os._exit(0)  # the groups of a pipeline do not end by themselves


def tell(directory):
    """Writes what ds_to_universal made of a directory beside it."""
    import safetensors.torch
    import torch

    found = {}
    for file in sorted((directory / "global_step2_universal" / "zero").glob("*/*.pt")):
        name = file.parent.name if file.stem == "fp32" else f"optimizer.{file.stem}.{file.parent.name}"
        value = torch.load(file, weights_only=False)
        found[name] = value["param"] if isinstance(value, dict) else torch.as_tensor(value)
    safetensors.torch.save_file({name: value.clone().contiguous() for name, value in found.items()},
                                directory.with_suffix(".safetensors"))


def write(directory):
    for kind in KINDS:
        target = directory / kind
        environment = {**os.environ, "DS_ACCELERATOR": "cpu"}
        subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=4", __file__, target, kind],
                       check=True, env=environment)
        subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--num_extract_workers=1",
                        "--num_merge_workers=1", "--no_strict", f"--input_folder={target}/global_step2",
                        f"--output_folder={target}/global_step2_universal"], check=True, env=environment)
        tell(target)
        for copied in target.glob("*.py"):
            copied.unlink()  # DeepSpeed's own programs
        if kind not in ("grid", "tensor2"):
            shutil.rmtree(target / "global_step2_universal")  # two are enough
        (target / "latest_universal").unlink(missing_ok=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        train(sys.argv[1], sys.argv[2])
    else:
        write(pathlib.Path(sys.argv[1]))
