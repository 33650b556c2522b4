"""`python -m engram` is the command line."""

from engram.cli import main

main()
