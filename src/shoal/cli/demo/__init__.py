"""`shoal demo`: four small sites on this machine, a crawl of them, and a check of the web servers' log."""
