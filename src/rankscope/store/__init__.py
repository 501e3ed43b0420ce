"""A run as tables: the readings of every rank behind SQL."""
