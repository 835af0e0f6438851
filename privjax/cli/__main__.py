"""`python -m privjax.cli`."""

from privjax.cli import main

if __name__ == "__main__":
    main()
