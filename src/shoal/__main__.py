"""`python -m shoal` is the command `shoal`."""

from shoal.cli import start

if __name__ == "__main__":
    start()
