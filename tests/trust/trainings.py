"""Small real trainings on the CPU, each of which looks odd in a way that is right.

A training is a generator of states: what its program would save after each interval.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import nn


@dataclasses.dataclass
class State:
    """What a training saves.

    Attributes:
      tensors: name -> a copy of the whole tensor.
      objects: name -> value that all ranks share.
      resumed: the training has loaded the newest checkpoint before it trained to this state.
      dropped: names are missing that were saved before, on purpose.
    """

    tensors: dict[str, torch.Tensor]
    objects: dict[str, object]
    resumed: bool = False
    dropped: bool = False


class Attention(nn.Module):
    def __init__(self, width: int, heads: int = 2):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (each.view(batch, length, self.heads, -1).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Experts(nn.Module):
    """Sends each token to one of eight experts. Few tokens go to most of them, and some get none for long."""

    def __init__(self, width: int, count: int = 8):
        super().__init__()
        self.router = nn.Linear(width, count)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
                                     for _ in range(count))
        with torch.no_grad():
            self.router.bias -= torch.arange(count) * 0.8

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        weight, chosen = self.router(flat).softmax(-1).max(-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[:, 0]
            if rows.numel():
                out = out.index_add(0, rows, expert(flat[rows]) * weight[rows, None])
        return out.view_as(x)


class Block(nn.Module):
    def __init__(self, width: int, experts: bool):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(width), nn.LayerNorm(width)
        self.mlp = Experts(width) if experts else nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                                                nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, layers: int = 2, width: int = 16, words: int = 64, experts: bool = False, tied: bool = False):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, experts) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3),
                                    nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                    nn.Linear(16, 10))

    def forward(self, x):
        return self.layers(x)


class LowRank(nn.Module):
    """A frozen layer and what is added to it."""

    def __init__(self, base: nn.Linear, rank: int = 2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.lora_a.T @ self.lora_b.T


def words_of(generator: torch.Generator, batch: int = 4, length: int = 12, words: int = 64) -> torch.Tensor:
    """Returns a batch of text that can be learned a little: each word depends on the one before."""
    rows = torch.randint(words, (batch, 1), generator=generator)
    for _ in range(length):
        step = torch.randint(3, (batch, 1), generator=generator)
        rows = torch.cat([rows, (rows[:, -1:] * 5 + step) % words], 1)
    return rows


def named_states(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, torch.Tensor]:
    """Returns the tensors of both under the names that cairn.torch gives them."""
    found = {f"model.{name}": value for name, value in model.state_dict(keep_vars=True).items()}
    if optimizer is not None:
        names = {parameter: name for name, parameter in model.named_parameters()}
        for parameter, kept in optimizer.state.items():
            for key, value in kept.items():
                if isinstance(value, torch.Tensor):
                    found[f"optimizer.state.{names[parameter]}.{key}"] = value
    return {name: value.detach().clone() for name, value in found.items()}


@dataclasses.dataclass
class Loop:
    """A training of a language model, step by step.

    Attributes:
      rate: the learning rate at a step, counted from 0.
      accumulate: batches for one step of the optimizer; the state is saved after each batch.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    rate: Callable[[int], float] = lambda step: 3e-3
    accumulate: int = 1
    loss: Callable[[nn.Module, torch.Generator], torch.Tensor] | None = None
    batches: int = 0
    steps: int = 0
    data: torch.Generator = dataclasses.field(default_factory=lambda: torch.Generator().manual_seed(5))

    def train(self, batches: int = 1) -> None:
        for _ in range(batches):
            if self.loss is None:
                text = words_of(self.data)
                logits = self.model(text[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
            else:
                loss = self.loss(self.model, self.data)
            (loss / self.accumulate).backward()
            self.batches += 1
            if self.batches % self.accumulate == 0:
                self.update()

    def update(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.steps) * group.get("share", 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1

    def state(self, **more) -> State:
        objects = {"progress": {"batches": self.batches, "steps": self.steps}, "global_step": self.steps,
                   "loader": {"position": 4 * self.batches, "generator": hash(bytes(self.data.get_state().numpy()))},
                   "scheduler": {"last_epoch": self.steps, "last_lr": self.rate(self.steps)},
                   "configuration": {"width": 16}}
        return State(named_states(self.model, self.optimizer), objects, **more)


def adam(model: nn.Module, **options) -> torch.optim.Optimizer:
    return torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=3e-3, **options)


def dense() -> Iterator[State]:
    loop = Loop(model := Gpt(), adam(model))
    for _ in itertools.count():
        loop.train(2)
        yield loop.state()


def settled() -> Iterator[State]:
    """The first save comes late, when moments move slowly."""
    loop = Loop(model := Gpt(), adam(model))
    loop.train(300)
    for _ in itertools.count():
        loop.train(2)
        yield loop.state()


def cosine_to_zero() -> Iterator[State]:
    """The learning rate falls to 0, and stays there."""
    loop = Loop(model := Gpt(), adam(model),
                rate=lambda step: 3e-3 * math.cos(math.pi / 2 * step / 100) if step < 100 else 0.0)
    for _ in itertools.count():
        loop.train()
        yield loop.state()


def mixture() -> Iterator[State]:
    """Experts that get no token for a while stand still, with their moments."""
    loop = Loop(model := Gpt(experts=True), adam(model))
    for _ in itertools.count():
        loop.train()
        yield loop.state()


def low_rank() -> Iterator[State]:
    model = Gpt().requires_grad_(False)
    for block in model.blocks:
        block.attention.out = LowRank(block.attention.out)
        block.mlp[0] = LowRank(block.mlp[0])
    loop = Loop(model, adam(model))
    for _ in itertools.count():
        loop.train()
        yield loop.state()


def moving_average() -> Iterator[State]:
    loop = Loop(model := Gpt(), adam(model))
    average = copy.deepcopy(model)
    for _ in itertools.count():
        loop.train()
        with torch.no_grad():
            for to, value in zip(average.parameters(), model.parameters(), strict=True):
                to.lerp_(value, 0.01)
        state = loop.state()
        for name, value in named_states(average, None).items():
            state.tensors[name.replace("model.", "ema.", 1)] = value
        yield state


def accumulation() -> Iterator[State]:
    """Most saves are within a step of the optimizer."""
    loop = Loop(model := Gpt(), adam(model), accumulate=4)
    for _ in itertools.count():
        loop.train()
        yield loop.state()


def warm_up() -> Iterator[State]:
    """The rate is 0 at first."""
    loop = Loop(model := Gpt(), adam(model), rate=lambda step: 3e-3 * max(0, min(1, (step - 10) / 50)))
    for _ in itertools.count():
        loop.train()
        yield loop.state()


def rate_zero() -> Iterator[State]:
    loop = Loop(model := Gpt(), torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9), rate=lambda step: 0.0)
    for _ in itertools.count():
        loop.train()
        yield loop.state()


def plain_sgd() -> Iterator[State]:
    loop = Loop(model := Gpt(), torch.optim.SGD(model.parameters(), lr=0.1), rate=lambda step: 0.1)
    for _ in itertools.count():
        loop.train()
        yield loop.state()


def mu_p() -> Iterator[State]:
    """Each parameter has a learning rate of its own, some of which are tiny."""
    model = Gpt()
    groups = [{"params": [each], "share": 1.0 if each.ndim == 2 else 1e-4} for each in model.parameters()]
    loop = Loop(model, torch.optim.Adam(groups, lr=3e-3))
    for _ in itertools.count():
        loop.train()
        yield loop.state()


def tied() -> Iterator[State]:
    """Both names of a tied weight are saved, with the same bytes."""
    loop = Loop(model := Gpt(tied=True), adam(model))
    for _ in itertools.count():
        loop.train()
        yield loop.state()


def batch_norm() -> Iterator[State]:
    def loss(model, data):
        images, labels = torch.randn(8, 1, 10, 10, generator=data), torch.randint(10, (8,), generator=data)
        return nn.functional.cross_entropy(model(images + labels[:, None, None, None] / 5), labels)

    loop = Loop(model := Convolutions(), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
                rate=lambda step: 0.05, loss=loss)
    for _ in itertools.count():
        loop.train()
        yield loop.state()


def scaler_skips() -> Iterator[State]:
    """Gradients overflow now and then, and the scaler skips the step of the optimizer."""
    loop = Loop(model := Gpt(), adam(model))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30, growth_interval=7)
    for number in itertools.count():
        text = words_of(loop.data)
        logits = model(text[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        scaler.scale(loss).backward()
        if number < 6 or number % 23 in (0, 1):
            next(model.parameters()).grad[0, 0] = torch.inf
        scaler.step(loop.optimizer)
        scaler.update()
        loop.optimizer.zero_grad(set_to_none=True)
        loop.batches += 1
        loop.steps += 1
        state = loop.state()
        state.objects["scaler"] = scaler.state_dict()
        yield state


def resumed() -> Iterator[State]:
    """Now and then the program ends, and another one loads the newest checkpoint."""
    loop = Loop(model := Gpt(), adam(model))
    for number in itertools.count():
        loop.train()
        yield loop.state(resumed=number > 0 and number % 15 == 0)


def fine_tuning() -> Iterator[State]:
    """After a while the training goes on with an optimizer of its own, and at last without the old one's names."""
    loop = Loop(model := Gpt(), adam(model))
    for number in itertools.count():
        fresh = number in (20, 60)
        if number == 20:
            loop.optimizer = adam(model)
        if number == 60:
            loop.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
            loop.rate = lambda step: 0.01
        loop.train()
        yield loop.state(resumed=fresh, dropped=number == 60)


def quantized() -> Iterator[State]:
    """The moments are kept in 8 bits, with a scale for each row."""
    loop = Loop(model := Gpt(), adam(model))
    for _ in itertools.count():
        loop.train()
        state = loop.state()
        for name in [each for each in state.tensors if each.endswith((".exp_avg", ".exp_avg_sq"))]:
            value = state.tensors.pop(name)
            rows = value.reshape(value.shape[0], -1)
            scale = rows.abs().amax(1) / 127 + 1e-30
            state.tensors[f"{name}.quantized"] = (rows / scale[:, None]).round().to(torch.int8)
            state.tensors[f"{name}.scale"] = scale
        yield state


def bfloat16_weights() -> Iterator[State]:
    """The weights have 8 bits of precision, which round away most updates."""
    model = Gpt().bfloat16()
    loop = Loop(model, torch.optim.SGD(model.parameters(), lr=0.02), rate=lambda step: 0.02 / (1 + step / 10))
    for _ in itertools.count():
        loop.train()
        yield loop.state()


def falling_rate() -> Iterator[State]:
    """The learning rate is halved with each save, until float32 rounds away the updates."""
    loop = Loop(model := Gpt(), adam(model), rate=lambda step: 3e-3 * 0.5 ** (step // 4))
    for _ in itertools.count():
        loop.train(4)
        yield loop.state()


def target_network() -> Iterator[State]:
    """A copy of the weights is renewed before each save, and from some save on more rarely."""
    loop = Loop(model := Gpt(tied=True), adam(model))
    target = copy.deepcopy(model)
    for number in itertools.count():
        loop.train()
        if number < 12 or number % 3 == 0:
            target.load_state_dict(model.state_dict())
        state = loop.state()
        for name, value in named_states(target, None).items():
            state.tensors[name.replace("model.", "target.", 1)] = value
        yield state


def replay() -> Iterator[State]:
    """Samples are kept in rings. Few rows are written between two saves, which one rank has."""
    loop = Loop(model := Gpt(), adam(model))
    rings = {"replay.observations": torch.randn(256, 16), "replay.rewards": torch.randn(256, 16)}
    for number in itertools.count():
        loop.train()
        begin = 8 * number % 256
        for ring in rings.values():
            ring[begin:begin + 8] = torch.randn(8, 16)
        state = loop.state()
        state.tensors |= {name: ring.clone() for name, ring in rings.items()}
        yield state


TRAININGS = {each.__name__: each for each in (
    dense, settled, cosine_to_zero, mixture, low_rank, moving_average, accumulation, warm_up, rate_zero, plain_sgd,
    mu_p, tied, batch_norm, scaler_skips, resumed, fine_tuning, quantized, bfloat16_weights,
    falling_rate, target_network, replay)}


def states_of(name: str, seed: int = 0) -> Iterator[State]:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    yield from TRAININGS[name]()
