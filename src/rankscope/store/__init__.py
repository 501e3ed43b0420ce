"""A run is a folder; this stage turns it into tables behind SQL."""
