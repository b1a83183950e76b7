"""Outputs that are databases: rows are replaced by their key."""
