"""A lease in the hands of a process: what any holder needs, a worker as well as Scrapy."""
