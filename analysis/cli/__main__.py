"""`python -m analysis.cli` is the `counterpoint` command."""

from analysis.cli import main

main()
