"""Outputs that are files: each worker writes parts, and finished parts are merged into the output."""
