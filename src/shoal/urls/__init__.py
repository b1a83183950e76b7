"""Rules about URLs: pure functions, no I/O, no clock."""
