"""Shoal on platforms that run functions: work for a limited time, and crawl requests from queues and HTTP.

`lambda_handler` is for AWS Lambda, `application` for platforms that send HTTP requests or CloudEvents. Both read the
settings from the environment. `work` is what they have in common.
"""

from shoal.serverless.http import application
from shoal.serverless.lambda_function import lambda_handler
from shoal.serverless.timed_worker import WorkSummary, work

__all__ = ["WorkSummary", "application", "lambda_handler", "work"]
