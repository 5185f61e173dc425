"""Lets `python -m kheads` do what `kheads` does."""

from kheads.cli import main

main()
