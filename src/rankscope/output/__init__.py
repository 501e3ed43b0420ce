"""One file per form: each shows Tables as text, CSV, JSON or Markdown."""
