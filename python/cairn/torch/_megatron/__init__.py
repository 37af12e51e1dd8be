"""Megatron-core's sharded state dicts, and what Megatron-core calls to save and load them."""
