"""The version of Shoal. pyproject.toml reads it from here; nothing else states it."""

__version__ = "0.2.0"
