"""Starts a job with the recorder on: standard library only."""
