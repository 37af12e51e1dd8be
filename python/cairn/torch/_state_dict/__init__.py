"""State dicts of PyTorch: taken apart into states of a client, and put together again."""
