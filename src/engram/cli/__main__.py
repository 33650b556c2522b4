"""`python -m engram.cli`."""

from engram.cli import main

main()
