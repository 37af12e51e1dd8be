"""A sweep of faults: the real programs run above a file layer that makes chosen calls go wrong, and their checkpoints
are compared with what they told. README.md of this folder says how it works."""
