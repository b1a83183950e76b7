"""Crawls from Python programs: `shoal.crawl` and `shoal.Coordinator`."""
