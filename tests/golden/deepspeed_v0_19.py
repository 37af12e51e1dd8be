"""Has written deepspeed_v0_19, by DeepSpeed 0.19.8 and PyTorch 2.13 on three ranks.

    python deepspeed_v0_19.py DIRECTORY      # with deepspeed installed; it starts the ranks itself

Each directory holds a checkpoint, and the safetensors file of its name what DeepSpeed's own tools read in it: the
weights by zero_to_fp32, which cannot read stage1, the others by ds_to_universal.
"""

import os
import pathlib
import shutil
import subprocess
import sys

WORLD = 3
# By directory: the stage, and what else its configuration has.
KINDS = {
    "stage1": (1, {"data_types": {"grad_accum_dtype": "fp32"}}),
    "stage2": (2, {}),
    "stage3": (3, {}),
}


def train(directory, kind):
    import deepspeed
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(11, 7)
            self.register_buffer("scale", torch.arange(7.0) / 8)
            self.up = torch.nn.Linear(7, 5)
            self.frozen = torch.nn.Linear(5, 3, bias=False)
            self.frozen.weight.requires_grad = False
            self.out = torch.nn.Linear(7, 11, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, tokens):
            hidden = self.embed(tokens) * self.scale.to(self.embed.weight.dtype)
            return self.out(hidden).float().mean() + self.frozen(self.up(hidden)).float().mean()

    deepspeed.init_distributed("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    model = Model()
    matrices = [p for p in model.parameters() if p.ndim > 1 and p.requires_grad]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": vectors, "weight_decay": 0.0}], lr=1e-2)
    stage, more = KINDS[kind]
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0, "sub_group_size": 50}
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False, "zero_optimization": zero, **more})
    for step in range(2):
        tokens = torch.randint(0, 11, (4,), generator=torch.Generator().manual_seed(10 * step + rank))
        engine.backward(engine(tokens))
        engine.step()
    engine.save_checkpoint(directory, tag="global_step2", client_state={"epoch": 1})


def tell(directory):
    """Writes what DeepSpeed's own tools read in a directory beside it."""
    import safetensors.torch
    import torch
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    found = {}
    for file in sorted((directory / "global_step2_universal" / "zero").glob("*/*.pt")):
        name = file.parent.name if file.stem == "fp32" else f"optimizer.{file.stem}.{file.parent.name}"
        value = torch.load(file)
        found[name] = value["param"] if isinstance(value, dict) else torch.as_tensor(value)
    if directory.name == "stage1":
        states = torch.load(directory / "global_step2" / "mp_rank_00_model_states.pt", weights_only=False)
        found["frozen.weight"] = states["module"]["frozen.weight"]  # which ds_to_universal converts to float32
        found["out.weight"] = found["embed.weight"]  # of which it takes the copy in 16 bits
    else:
        found.update(get_fp32_state_dict_from_zero_checkpoint(str(directory), tag="global_step2"))
    for name, value in found.items():
        weight = name.split(".", 2)[-1]
        if value.ndim == 1 and name.startswith("optimizer."):  # of stage 3
            found[name] = value.reshape(found[weight].shape)
    safetensors.torch.save_file({name: value.clone().contiguous() for name, value in found.items()},
                                directory.with_suffix(".safetensors"))


def write(directory):
    for kind in KINDS:
        target = directory / kind
        subprocess.run([sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={WORLD}", __file__, target,
                        kind], check=True, env={**os.environ, "DS_ACCELERATOR": "cpu"})
        subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state",
                        "--num_extract_workers=1", "--num_merge_workers=1", f"--input_folder={target}/global_step2",
                        f"--output_folder={target}/global_step2_universal"], check=True,
                       env={**os.environ, "DS_ACCELERATOR": "cpu"})
        tell(target)
        for copied in target.glob("*.py"):
            copied.unlink()  # DeepSpeed's own programs
        if kind == "stage1":
            shutil.rmtree(target / "global_step2_universal")  # as that of stage 2


if __name__ == "__main__":
    if len(sys.argv) > 2:
        train(sys.argv[1], sys.argv[2])
    else:
        write(pathlib.Path(sys.argv[1]))
