"""What other tools' layouts are filled with."""
