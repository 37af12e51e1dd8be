"""The way to a coordinator, and the requests that change what it keeps of a job's checkpoints."""
