"""One file per format: each gives what it read as rankscope.model.Reading."""
