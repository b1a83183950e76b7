"""Delays, back-off and robots.txt rules. Pure functions: no I/O, no clock; time is an argument."""
