"""Starts a job so that every process of it keeps a rank file, and collects those files."""
