"""One file per format: each reads a foreign or own profile into the model."""
