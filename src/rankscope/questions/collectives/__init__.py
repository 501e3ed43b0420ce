"""Collectives: which records belong together, who waits for whom, and how fast data move."""
