"""A lease in a process: what every lease holder needs, workers and Scrapy alike."""
