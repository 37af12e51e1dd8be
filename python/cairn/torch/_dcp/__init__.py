"""The calls of torch.distributed.checkpoint, made with Cairn."""
