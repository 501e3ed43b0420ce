"""Lets `python -m rankscope` do what `rankscope` does."""

from rankscope.cli import main

raise SystemExit(main())
