"""Reads directories of safetensors files into a program's arrays, without an agent."""
