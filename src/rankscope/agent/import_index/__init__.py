"""The import index: one file that answers what an environment's imports ask. Runs in that environment's Python."""
