"""What a page says: its text, links and wishes, read from bytes. Pure functions, no I/O, no clock."""
