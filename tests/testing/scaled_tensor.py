"""A tensor that is made of others, as weights and optimizer states of quantizing libraries are."""

import torch
from torch.utils._pytree import tree_map


class ScaledTensor(torch.Tensor):
    """Integers, a scale for every `block` of them, and a table that all tensors share. It has no memory of its own.

    Whatever torch does to it, such as a view as another dtype, gets a temporary tensor of the numbers that are meant.
    """

    @staticmethod
    def __new__(cls, codes, scale, table):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes, scale, table):
        self.codes, self.scale, self.table = codes, scale, table

    @classmethod
    def random(cls, rows, columns, seed, block=4):
        chance = torch.Generator().manual_seed(seed)
        return cls(torch.randint(0, 16, (rows, columns), generator=chance, dtype=torch.uint8),
                   torch.rand(rows * columns // block, generator=chance), torch.rand(16, generator=chance))

    def numbers(self):
        return self.table[self.codes.long()] * self.scale.repeat_interleave(
            self.codes.numel() // max(self.scale.numel(), 1)).reshape(self.codes.shape)

    def copies(self):
        """Returns copies of all that it is."""
        return [part.clone() for part in (self.codes, self.scale, self.table)]

    def __repr__(self):
        return f"ScaledTensor({tuple(self.shape)})"

    def __tensor_flatten__(self):
        return ["codes", "scale", "table"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, context, outer_size, outer_stride):
        return cls(inner["codes"], inner["scale"], inner["table"])

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        if function is torch.ops.aten.detach.default or (
                function is torch.ops.aten.view.default and list(arguments[1]) == list(arguments[0].shape)):
            return cls(arguments[0].codes, arguments[0].scale, arguments[0].table)
        plain = tree_map(lambda value: value.numbers() if isinstance(value, cls) else value, (arguments, named or {}))
        return function(*plain[0], **plain[1])
