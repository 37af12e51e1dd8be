"""Arrays in the memory of GPUs, and copies between these and the host."""
