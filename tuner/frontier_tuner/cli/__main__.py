"""`python -m frontier_tuner.cli`."""

from frontier_tuner.cli import main

main()
