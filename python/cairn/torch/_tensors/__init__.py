"""Tensors of PyTorch: what a rank holds of them, and copies between their memory and the host's."""
