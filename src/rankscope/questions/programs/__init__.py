"""Programs that a framework compiles and starts as a whole."""
