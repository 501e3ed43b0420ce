"""Runs a command from a copy of its environment on the node: what it touches, packed once, read once per job."""
