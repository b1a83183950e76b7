"""The same everyday tasks with several crawlers: lines to write, time, and whether the result is right."""
