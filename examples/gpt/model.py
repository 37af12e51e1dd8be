"""A small GPT: pre-norm decoder blocks, causal attention, byte vocabulary."""

import dataclasses

import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass(frozen=True)
class Config:
    layers: int = 4
    heads: int = 4
    width: int = 128
    context: int = 64
    vocabulary: int = 256


class Attention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.head_width = config.width // config.heads
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key = nn.Linear(config.width, config.width, bias=False)
        self.value = nn.Linear(config.width, config.width, bias=False)
        self.output = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        # The size is -1 because under tensor parallelism this rank has only some of the heads.
        query, key, value = (linear(x).view(batch, length, -1, self.head_width).transpose(1, 2)
                             for linear in (self.query, self.key, self.value))
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(y.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.width)
        self.expand = nn.Linear(config.width, 4 * config.width)
        self.contract = nn.Linear(4 * config.width, config.width)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.contract(functional.gelu(self.expand(self.mlp_norm(x))))


class GPT(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.position = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
