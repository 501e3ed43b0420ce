"""How ranks and hosts differ from each other."""
