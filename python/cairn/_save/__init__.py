"""A save, from the call of the trainer to its outcome."""
