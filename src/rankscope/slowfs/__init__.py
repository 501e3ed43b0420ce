"""A slow, counting, read-only view of a folder, for tests and studies."""
