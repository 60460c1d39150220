"""``python -m lakemark``."""

from lakemark.cli import main

if __name__ == "__main__":
    main()
