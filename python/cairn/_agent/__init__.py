"""The way to the agent beside a trainer: where it is, calls to it, and the memory that it shares."""
