"""A trainer's session with its agent, and what is asked and watched within it."""
