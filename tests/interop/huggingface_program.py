"""Trains a tiny GPT-2 by Hugging Face's Trainer on several ranks, sharded by FSDP2 or DeepSpeed, for example_worker.py.

It prints the losses and norms of gradients to their last bit, and how long a step of the callback took that saved
nothing.
"""

import argparse
import tempfile
import time

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

import cairn
from cairn.huggingface import CairnCallback

FSDP = {"fsdp": "full_shard auto_wrap",
        "fsdp_config": {"fsdp_version": 2, "transformer_layer_cls_to_wrap": ["GPT2Block"],
                        "cpu_ram_efficient_loading": False}}


def zero(stage):
    return {"deepspeed": {"zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
                          "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
                          "gradient_clipping": "auto", "zero_allow_untested_optimizer": True}}


class StateWithoutGpu:
    """accelerate takes FSDP on GPUs alone; what it does then needs none."""

    begin = AcceleratorState.__init__

    @staticmethod
    def init(state, *arguments, fsdp_plugin=None, **more):
        StateWithoutGpu.begin(state, *arguments, fsdp_plugin=fsdp_plugin, **more)
        if fsdp_plugin is not None:
            state.distributed_type, state.fsdp_plugin = DistributedType.FSDP, fsdp_plugin


AcceleratorState.__init__ = StateWithoutGpu.init


class Windows(torch.utils.data.Dataset):
    def __init__(self, seed):
        self.tokens = torch.randint(0, 64, (48, 16), generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Tell(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **parts):
        if args.process_index == 0 and "loss" in logs:
            print(f"\nstep {state.global_step} loss {logs['loss']!r} norm {logs.get('grad_norm')!r}\n", end="",
                  flush=True)


class Timed(CairnCallback):
    def on_step_end(self, args, state, control, **parts):
        began, saved = time.perf_counter(), self._saved
        result = super().on_step_end(args, state, control, **parts)
        if self._saved == saved:
            print(f"\nidle {time.perf_counter() - began:.6f}\n", end="", flush=True)
        return result


class ExactTrainer(Trainer):
    """A Trainer whose logged loss keeps all of its bits."""

    def log(self, logs, start_time=None):
        super().log({**logs, "loss": self.exact} if "loss" in logs else logs, start_time)

    def training_step(self, *arguments, **more):
        loss = super().training_step(*arguments, **more)
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        self.exact = (whole / dist.get_world_size()).item()
        return loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sharding", required=True)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--best", action="store_true")
    parser.add_argument("--limit", type=int)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0,
                                       embd_pdrop=0.0, attn_pdrop=0.0))
    sharding = FSDP if arguments.sharding == "fsdp" else zero(int(arguments.sharding.removeprefix("zero")))
    more = {}
    if arguments.best:
        more = {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 4}
    with cairn.connect() as client, tempfile.TemporaryDirectory() as output:
        callback = Timed(client)
        trainer = ExactTrainer(
            model, TrainingArguments(output, max_steps=arguments.steps, save_steps=4, learning_rate=1e-2, report_to=[],
                                     use_cpu=True, logging_steps=1, disable_tqdm=True, max_grad_norm=1e9,
                                     per_device_train_batch_size=2, seed=3, lr_scheduler_type="constant",
                                     save_total_limit=arguments.limit,
                                     gradient_accumulation_steps=arguments.accumulate, **sharding, **more),
            train_dataset=Windows(1), eval_dataset=Windows(2), callbacks=[callback, Tell()])
        trainer.train(resume_from_checkpoint=callback.resume_directory(trainer))
        if arguments.best:
            print(f"\nbest {trainer.state.best_global_step} metric {trainer.state.best_metric!r} "
                  f"now {trainer.evaluate()['eval_loss']!r}\n", end="", flush=True)
    dist.destroy_process_group()
