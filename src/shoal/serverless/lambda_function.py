"""The handler for AWS Lambda: `shoal.serverless.lambda_handler`.

A batch of an SQS queue has crawl requests: each record is submitted, and those that fail are returned as partial batch
failures, so that SQS delivers them again and at last moves them to its dead-letter queue. Any other event, such as one
of a schedule, starts work that ends when the function's time has nearly expired or nothing is left.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Protocol

import msgspec

from shoal.errors import ShoalError
from shoal.frontier import Frontier
from shoal.operations.submit import submit_message
from shoal.serverless.timed_worker import work
from shoal.settings import Settings, load


class Context(Protocol):
    def get_remaining_time_in_millis(self) -> int: ...


def lambda_handler(event: Any, context: Context) -> dict[str, Any]:
    """Submit the crawl requests of an SQS batch, or work until the time has nearly expired."""
    settings = load().settings
    if isinstance(event, dict) and isinstance(event.get("Records"), list):
        return {"batchItemFailures": asyncio.run(_submit_batch(settings, event["Records"]))}
    seconds = context.get_remaining_time_in_millis() / 1000
    return dict(msgspec.to_builtins(asyncio.run(work(settings, seconds))))


async def _submit_batch(settings: Settings, records: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Returns the records that failed; for a FIFO queue also all after the first of them, to keep the order."""
    failures: list[dict[str, str]] = []
    try:
        async with await Frontier.from_settings(settings) as frontier:
            for record in records:
                message_id = str(record.get("messageId", ""))
                if failures and str(record.get("eventSourceARN", "")).endswith(".fifo"):
                    failures.append({"itemIdentifier": message_id})
                    continue
                try:
                    submitted = await submit_message(
                        frontier, str(record.get("body", "")).encode(), message_id=message_id, settings=settings
                    )
                    _log("crawl.submitted", crawl=submitted.id, created=submitted.created, message=message_id)
                except ShoalError as error:
                    _log("request.refused", message=message_id, problem=str(error))
                    failures.append({"itemIdentifier": message_id})
    except ShoalError as error:
        # The store is unavailable: SQS delivers the whole batch again.
        _log("store.trouble", problem=str(error))
        return [{"itemIdentifier": str(record.get("messageId", ""))} for record in records]
    return failures


def _log(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), file=sys.stderr, flush=True)
