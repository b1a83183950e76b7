"""One module for each command of `shoal`."""
