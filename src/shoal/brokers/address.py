"""URIs of brokers: Redis lists and streams, Kafka topics, AMQP exchanges and queues.

redis://USER:PASSWORD@HOST:6379/DATABASE/NAME?stream&maxlen=N
kafka://USER:PASSWORD@BROKER:9092,BROKER:9092/TOPIC?security.protocol=ssl
amqp://USER:PASSWORD@HOST/VHOST/NAME?routing_key=KEY
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

from shoal.errors import SinkRefused
from shoal.settings import masked

TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
# Only these of librdkafka's properties: others load code or read files, and an output may come from the store.
KAFKA_PROPERTIES = (
    "security.protocol", "sasl.mechanism", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
    "ssl.key.password", "compression.type", "message.max.bytes", "client.id",
)  # fmt: skip
# The options of an output by scheme.
OPTIONS = {
    "redis": ("stream", "maxlen"),
    "rediss": ("stream", "maxlen", *TLS_OPTIONS),
    "kafka": KAFKA_PROPERTIES,
    "amqp": ("routing_key",),
    "amqps": ("routing_key", *TLS_OPTIONS),
}
# int() refuses thousands of digits.
_MAXLEN = re.compile("0*[1-9][0-9]{0,17}")
_SYNTAX = {
    "redis": "write {scheme}://USER:PASSWORD@HOST:6379/0/NAME",
    "kafka": "write kafka://BROKER:9092,BROKER:9092/TOPIC",
    "amqp": "write {scheme}://USER:PASSWORD@HOST/NAME, or HOST/VHOST/NAME",
}


class BrokerAddress(NamedTuple):
    """A list, stream, topic, exchange or queue of a broker."""

    # The full URI, with its password.
    uri: str
    # The URI for messages, without its password.
    shown: str
    user: str
    password: str
    # One host with its port, or several separated by commas (Kafka).
    hosts: str
    # The number of the database (Redis) or the virtual host (AMQP).
    namespace: str
    name: str
    options: dict[str, str]


def parse_broker_uri(uri: str, *, what: str = "output", options: Sequence[str] | None = None) -> BrokerAddress:
    """Parse a URI; SinkRefused explains in one sentence what is wrong with it, without its password.

    `what` names the URI in the message. `options` are the options that are allowed, by default those of an output.
    """
    shown = repr(masked(uri))
    scheme, _, rest = uri.partition("://")
    scheme = scheme.lower()
    kind = scheme.removesuffix("s") if scheme != "redis" else scheme
    if kind not in _SYNTAX:
        schemes = " or ".join(f"{name}://" for name in OPTIONS)
        raise SinkRefused(f"The {what} {shown} is not a valid address; it starts with {schemes}.")
    advice = _SYNTAX[kind].format(scheme=scheme) + ", with %40, %2F, %23 and %3F for @, /, # and ? in a password"
    before, _, query = rest.partition("?")
    netloc, _, path = before.partition("/")
    login, _, hosts = netloc.rpartition("@")
    user, _, password = login.partition(":")
    given = dict(parse_qsl(query, keep_blank_values=True))
    *namespaces, name = (unquote(part) for part in (path.split("/", 1) if kind == "redis" else path.split("/")))
    namespace = namespaces[0] if namespaces else {"redis": "", "kafka": "", "amqp": "/"}[kind]
    complete = {
        "redis": re.fullmatch("[0-9]{1,9}", namespace) is not None and bool(name),
        "kafka": not namespaces and re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) is not None,
        # Without a name it is the default exchange, which passes a message to the queue that its routing key names.
        "amqp": len(namespaces) <= 1 and (bool(name) or "routing_key" in given) and len(name.encode()) <= 255,
    }[kind]
    if not complete or not hosts or "@" in path or "#" in before or not _are_hosts(hosts, many=kind == "kafka"):
        raise SinkRefused(f"The {what} {shown} is not a valid address; {advice}.")
    known = OPTIONS[scheme] if options is None else options
    if unknown := given.keys() - set(known):
        raise SinkRefused(
            f"The {what} {shown} has the unknown option {min(unknown)!r}; valid options are {', '.join(known)}."
        )
    if "maxlen" in given and not ("stream" in given and _MAXLEN.fullmatch(given["maxlen"])):
        raise SinkRefused(f"The {what} {shown} has an invalid maxlen; write ?stream&maxlen=NUMBER.")
    full = f"{scheme}://{netloc}/{quote(path, safe='/%:')}" + (f"?{urlencode(given)}" if given else "")
    return BrokerAddress(full, masked(full), unquote(user), unquote(password), hosts, namespace, name, given)


def _are_hosts(text: str, *, many: bool) -> bool:
    hosts = text.split(",")
    return (many or len(hosts) == 1) and all(
        re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?", host) for host in hosts
    )
