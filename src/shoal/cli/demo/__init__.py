"""`shoal demo`: a small site on this machine, a crawl of it, and what the site has seen."""
