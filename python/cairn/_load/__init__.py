"""A load or a reshard, from the call of the trainer to the arrays that it fills."""
