"""Bodies in a bucket of Amazon S3 or whatever speaks its protocol, through obstore.

Keys come from the environment of the worker (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or the role
of the machine) and never from the URI, which is in the store for everybody to read. What obstore says of an error shows
addresses and settings; a person is told the status and the code of the answer, nothing else.
"""

from __future__ import annotations

import datetime
import importlib.util
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from shoal.errors import SinkRefused
from shoal.settings import masked
from shoal.sinks.bodies.body_store import BodyStore
from shoal.sinks.retry import TransientError

# An object beyond this is sent in pieces of this size.
PIECE_BYTES = 8 << 20
PIECES_AT_ONCE = 4
# Short: whoever keeps a body tries again for as long as it takes, and says so.
RETRIES = 2
RETRY_SECONDS = 20.0
ANSWER_SECONDS = 60
CONNECT_SECONDS = 5
# Written when a bucket is opened: only writing shows that one may write.
MARK = ".shoal"
ADVICE = "write s3://BUCKET/PREFIX?endpoint=URL&region=NAME"


class S3Bucket(NamedTuple):
    """`uri` is the full spelling; it has no secret."""

    uri: str
    name: str
    prefix: str
    endpoint: str
    region: str


def check_driver() -> None:
    if importlib.util.find_spec("obstore") is None:
        raise SinkRefused(
            "Files in a bucket need the package obstore, which is not installed; run: pip install 'shoal[s3]'."
        )


def bucket_of(uri: str) -> S3Bucket:
    """SinkRefused in one sentence for what is no bucket. Options are named, their values are not shown."""
    shown = repr(masked(uri.partition("?")[0])[:200])
    try:
        parts = urlsplit(uri)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        endpoint = urlsplit(options.get("endpoint", ""))
        endpoint.port  # noqa: B018 (a ValueError)
    except ValueError:
        raise SinkRefused(f"The place for files {shown} cannot be read; {ADVICE}.") from None
    if "@" in parts.netloc or "@" in endpoint.netloc:
        raise SinkRefused(
            f"The place for files {shown} has keys in it; "
            "give them to the workers as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}", parts.netloc) or parts.fragment:
        raise SinkRefused(f"The place for files {shown} names no bucket; {ADVICE}.")
    for name in options:
        if name not in ("endpoint", "region"):
            raise SinkRefused(f"The place for files {shown} has the option {name[:60]!r}, which is none; {ADVICE}.")
    if options.get("endpoint") and (endpoint.scheme not in ("http", "https") or not endpoint.hostname):
        raise SinkRefused(f"The endpoint of the place for files {shown} is no http or https address; {ADVICE}.")
    if not re.fullmatch(r"[A-Za-z0-9-]*", options.get("region", "")):
        raise SinkRefused(f"The region of the place for files {shown} is not letters, digits and -; {ADVICE}.")
    prefix = unquote(parts.path).strip("/")
    if not prefix.isprintable() or any(step in ("", ".", "..") for step in prefix.split("/") if prefix):
        raise SinkRefused(f"The prefix of the place for files {shown} has empty steps or dots; {ADVICE}.")
    asked = {name: options[name] for name in ("endpoint", "region") if options.get(name)}
    full = f"s3://{parts.netloc}" + (f"/{quote(prefix)}" if prefix else "") + (f"?{urlencode(asked)}" if asked else "")
    return S3Bucket(full, parts.netloc, prefix, asked.get("endpoint", ""), asked.get("region", ""))


class S3BodyStore(BodyStore):
    def __init__(self, uri: str, on_trouble: Callable[[str], None]) -> None:
        # An extra: imported by whoever opens a bucket.
        import obstore
        from obstore.store import S3Store

        self._bucket = bucket_of(uri)
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

    async def _begin(self) -> None:
        await self._put(MARK, b"", "application/octet-stream")

    async def _put(self, name: str, body: bytes, content_type: str) -> None:
        try:
            await self._send(
                self._store, name, body, attributes={"Content-Type": content_type},
                chunk_size=PIECE_BYTES, max_concurrency=PIECES_AT_ONCE,
            )  # fmt: skip
        except Exception as error:
            told, heals = _meaning(str(error))
            # What worked before was changed by a person, who can change it back.
            if heals or self._opened:
                raise TransientError(told) from None
            raise SinkRefused(f"Files cannot be kept in {self._bucket.uri}: it {told}.") from None

    def _where(self, name: str) -> str:
        return "/".join(("s3:/", self._bucket.name, *filter(None, (self._bucket.prefix, name))))


def _meaning(message: str) -> tuple[str, bool]:
    """What an error says to a person, after the name of the place, and whether it heals by itself."""
    # The address of the machine's role: asked when there are no keys.
    if re.search(r"(GET|PUT) \S*/latest/(api/token|meta-data)", message):
        return "finds no keys; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for the workers", False
    status = re.search(r"status code: (\d{3})", message)
    code = re.search(r"<Code>(\w{1,60})</Code>", message)
    shown = f"{status[1]} {code[1]}" if status and code else status[1] if status else ""
    if code and code[1] == "NoSuchBucket":
        return "is no bucket that is there", False
    if status and status[1] in ("401", "403"):
        return f"does not let these keys write ({shown}); check them and their rights", False
    if status and status[1] in ("301", "400", "404", "405", "501"):
        return f"refuses ({shown}); check the bucket, the endpoint and the region", False
    return (f"cannot take bodies now ({shown})" if shown else "cannot be reached"), True
