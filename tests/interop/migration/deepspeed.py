"""A training that saves by DeepSpeed, as it is before it goes over to Cairn (docs/migration.md)."""

import argparse

import deepspeed
import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--resume", type=int, default=0, help="the step")
    parser.add_argument("--source")
    arguments = parser.parse_args()
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    config = {"train_batch_size": 4, "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True}
    engine, _, _, _ = deepspeed.initialize(model=model, config=config,
                                           optimizer=torch.optim.AdamW(model.parameters(), lr=0.01))
    if arguments.resume:
        engine.load_checkpoint("checkpoints", tag=f"global_step{arguments.resume}")
    for step in range(arguments.resume + 1, arguments.steps + 1):
        loss = engine(torch.randn(4, 8, generator=torch.Generator().manual_seed(step))).square().mean()
        engine.backward(loss)
        engine.step()
        print(f"step {step} loss {loss.item()!r}", flush=True)
        if step % 3 == 0:
            engine.save_checkpoint("checkpoints", tag=f"global_step{step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
