"""Copies from a rank's state to the memory that it shares with its agent."""
