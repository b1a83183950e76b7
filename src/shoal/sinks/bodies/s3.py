"""Bodies in a bucket of Amazon S3 or a compatible service, through obstore.

Keys come from the environment of the worker (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or the role
of the machine) and never from the URI, which everybody with access to the store can read. An error message of obstore
shows addresses and settings; ours shows only the status and the code of the response.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

from shoal.brokers.connection import ConnectionFault
from shoal.errors import SinkRefused
from shoal.settings import masked
from shoal.sinks.bodies.body_store import BodyStore
from shoal.sinks.driver import check_installed
from shoal.sinks.retry import TransientError
from shoal.sinks.uri import split_server_uri

# A larger object is uploaded in pieces of this size.
PIECE_BYTES = 8 << 20
PIECES_AT_ONCE = 4
# Short, because `keep` retries for as long as it takes, and reports that.
RETRIES = 2
RETRY_SECONDS = 20.0
ANSWER_SECONDS = 60
CONNECT_SECONDS = 5
# Written when a bucket is opened: only a write shows that the keys allow writing.
MARK = ".shoal"
ADVICE = "write s3://BUCKET/PREFIX?endpoint=URL&region=NAME"


class S3Bucket(NamedTuple):
    """`uri` is the full URI; it contains no secret."""

    uri: str
    name: str
    prefix: str
    endpoint: str
    region: str


def check_driver() -> None:
    check_installed("A bucket for files", "obstore", "s3")


def parse_bucket_uri(uri: str) -> S3Bucket:
    """Parse a URI; SinkRefused explains in one sentence what is wrong with it, without the values of its options."""
    shown = repr(masked(uri.partition("?")[0])[:200])
    try:
        parts, options = split_server_uri(uri)
        endpoint = urlsplit(options.get("endpoint", ""))
        endpoint.port  # noqa: B018 (a ValueError)
    except ValueError:
        raise SinkRefused(f"The location for files {shown} is not a valid URI; {ADVICE}.") from None
    if "@" in parts.netloc or "@" in endpoint.netloc:
        raise SinkRefused(
            f"The location for files {shown} contains keys; "
            "give them to the workers as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}", parts.netloc) or parts.fragment:
        raise SinkRefused(f"The location for files {shown} does not name a bucket; {ADVICE}.")
    for name in options:
        if name not in ("endpoint", "region"):
            raise SinkRefused(f"The location for files {shown} has the unknown option {name[:60]!r}; {ADVICE}.")
    if options.get("endpoint") and (endpoint.scheme not in ("http", "https") or not endpoint.hostname):
        raise SinkRefused(f"The endpoint of the location for files {shown} is not an http or https URL; {ADVICE}.")
    if not re.fullmatch(r"[A-Za-z0-9-]*", options.get("region", "")):
        raise SinkRefused(f"The region of the location for files {shown} is invalid; {ADVICE}.")
    prefix = unquote(parts.path).strip("/")
    if not prefix.isprintable() or any(step in ("", ".", "..") for step in prefix.split("/") if prefix):
        raise SinkRefused(f"The prefix of the location for files {shown} has empty segments or dots; {ADVICE}.")
    given = {name: options[name] for name in ("endpoint", "region") if options.get(name)}
    full = f"s3://{parts.netloc}" + (f"/{quote(prefix)}" if prefix else "") + (f"?{urlencode(given)}" if given else "")
    return S3Bucket(full, parts.netloc, prefix, given.get("endpoint", ""), given.get("region", ""))


class S3BodyStore(BodyStore):
    def __init__(self, uri: str, on_trouble: Callable[[str], None]) -> None:
        # An optional package.
        import obstore
        from obstore.store import S3Store

        self._bucket = parse_bucket_uri(uri)
        super().__init__(self._bucket.uri, on_trouble)
        environment = os.environ.get
        endpoint = self._bucket.endpoint or environment("AWS_ENDPOINT_URL_S3") or environment("AWS_ENDPOINT_URL") or ""
        region = self._bucket.region or environment("AWS_REGION") or environment("AWS_DEFAULT_REGION") or "us-east-1"
        more: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
        self._send = obstore.put_async
        self._store = S3Store(
            self._bucket.name,
            prefix=self._bucket.prefix or None,
            region=region,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "timeout": datetime.timedelta(seconds=ANSWER_SECONDS),
                "connect_timeout": datetime.timedelta(seconds=CONNECT_SECONDS),
            },
            retry_config={"max_retries": RETRIES, "retry_timeout": datetime.timedelta(seconds=RETRY_SECONDS)},
            **more,
        )

    async def _prepare(self) -> None:
        await self._put(MARK, b"", "application/octet-stream")

    async def _put(self, name: str, body: bytes, content_type: str) -> None:
        try:
            await self._send(
                self._store, name, body, attributes={"Content-Type": content_type},
                chunk_size=PIECE_BYTES, max_concurrency=PIECES_AT_ONCE,
            )  # fmt: skip
        except Exception as error:
            fault = _fault_of(str(error))
            # A bucket that worked before may work again, when its configuration is corrected.
            if fault.transient or self._opened:
                raise TransientError(fault.sentence) from None
            raise SinkRefused(f"Files cannot be stored in {self._bucket.uri}: it {fault.sentence}.") from None

    def _location(self, name: str) -> str:
        return "/".join(("s3:/", self._bucket.name, *filter(None, (self._bucket.prefix, name))))


def _fault_of(message: str) -> ConnectionFault:
    """An error of obstore in words."""
    # obstore requests the machine's role from these addresses if there are no keys.
    if re.search(r"(GET|PUT) \S*/latest/(api/token|meta-data)", message):
        return ConnectionFault(
            "has no keys; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for the workers", transient=False
        )
    status = re.search(r"status code: (\d{3})", message)
    code = re.search(r"<Code>(\w{1,60})</Code>", message)
    shown = f"{status[1]} {code[1]}" if status and code else status[1] if status else ""
    if code and code[1] == "NoSuchBucket":
        return ConnectionFault("does not exist", transient=False)
    if status and status[1] in ("401", "403"):
        return ConnectionFault(f"does not let these keys write ({shown}); check their permissions", transient=False)
    if status and status[1] in ("301", "400", "404", "405", "501"):
        return ConnectionFault(f"refused ({shown}); check the bucket, the endpoint and the region", transient=False)
    return ConnectionFault(f"cannot store bodies now ({shown})" if shown else "cannot be reached", transient=True)
