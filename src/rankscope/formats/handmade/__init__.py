"""Tables somebody made by hand, in Markdown or comma-separated values."""
