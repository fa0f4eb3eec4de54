"""`python -m hedgerow` runs the command line."""

from hedgerow.cli.app import main

if __name__ == "__main__":
    main()
