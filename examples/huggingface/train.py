"""Fine-tunes a tiny GPT-2 with Hugging Face's Trainer; Cairn saves and resumes it.

    cairn run --root /tmp/checkpoints -- python examples/huggingface/train.py --steps 40

Start it again with more steps: it goes on where it ended. Without a network it makes its model itself.
"""

import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import cairn
from cairn.huggingface import CairnCallback

TEXT = b"Cairns are piles of stones that mark a path. " * 40


class Windows(torch.utils.data.Dataset):
    """Windows of a text's bytes."""

    def __len__(self):
        return 512

    def __getitem__(self, index):
        start = index * 3 % (len(TEXT) - 33)
        tokens = torch.tensor(list(TEXT[start:start + 32]))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-steps", type=int, default=10)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=32, n_embd=32, n_layer=2, n_head=2))
    with cairn.connect() as client, tempfile.TemporaryDirectory() as output:
        callback = CairnCallback(client)
        trainer = Trainer(model, TrainingArguments(output, max_steps=arguments.steps, save_steps=arguments.save_steps,
                                                   save_total_limit=3, learning_rate=1e-3, report_to=[], use_cpu=True,
                                                   logging_steps=10, disable_tqdm=True),
                          train_dataset=Windows(), callbacks=[callback])
        resume = callback.resume_directory(trainer)
        trainer.train(resume_from_checkpoint=resume)
        print(f"trained to step {trainer.state.global_step}, {'resumed' if resume else 'from the beginning'}; "
              f"the job has the steps {client.checkpoints()}")


if __name__ == "__main__":
    main()
