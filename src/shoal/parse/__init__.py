"""Parsers of pages: text, links and robots directives, from bytes. Pure functions, no I/O, no clock."""
