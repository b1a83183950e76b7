"""Outputs that are message streams: each record is sent at least once."""
