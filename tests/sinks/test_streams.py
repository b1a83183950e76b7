"""Streams: one message per record, at least once, through restarts of the broker and deaths of writers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aio_pika
import msgspec
import pytest
from aio_pika.abc import AbstractChannel

from shoal.errors import SinkRefused
from shoal.model.record import Item, RecordKey
from shoal.sinks import Sink, check_output, is_local, open_sink, takes
from shoal.sinks.files.jsonl import json_line
from shoal.sinks.streams import stream
from tests.brokers import PASSWORD, Kafka, Rabbit
from tests.proxy import proxy
from tests.servers import WAIT_SECONDS, Server, free_port, tls_server
from tests.sinks.outputs import page, urls
from tests.sinks.test_contract import Fleet
from tests.sinks.test_servers import until


@dataclass
class Stream:
    """One stream of a technology: its address, what is in it, and how its broker ends and comes back."""

    address: str
    messages: Callable[[int], list[dict[str, Any]]]
    down: Callable[[], None]
    up: Callable[[], None]

    def uri(self, folder: Path | None = None) -> str:
        return self.address

    def keys(self, expected: int) -> Counter[RecordKey]:
        return Counter((message["crawl"], message["url"]) for message in self.messages(expected))


@pytest.fixture(params=["list", "stream", "kafka", pytest.param("amqp", marks=pytest.mark.variant)])
def there(request: pytest.FixtureRequest) -> Stream:
    """A stream of its own for each test."""
    name = f"pages-{abs(hash(request.node.name)):x}"
    kind = request.param
    if kind in ("list", "stream"):
        store: Server = request.getfixturevalue("valkey")
        uri = f"{store.url}/0/{name}" + ("?stream" if kind == "stream" else "")

        def held(expected: int) -> list[dict[str, Any]]:
            if kind == "list":
                return [json.loads(message) for message in store.ask("LRANGE", name, 0, -1, seconds=30)]
            entries = store.ask("XRANGE", name, "-", "+", seconds=30)
            messages = [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in entries]
            assert all(json.loads(message[b"json"])["url"] in message[b"key"].decode() for message in messages)
            return [json.loads(message[b"json"]) for message in messages]

        return Stream(uri, held, store.kill, store.start)
    if kind == "kafka":
        cluster: Kafka = request.getfixturevalue("brokers")

        def consumed(expected: int) -> list[dict[str, Any]]:
            messages = cluster.consume(name, lambda received: len({message.key() for message in received}) >= expected)
            assert all(json.loads(message.value())["url"] in message.key().decode() for message in messages)
            return [json.loads(message.value()) for message in messages]

        return Stream(cluster.uri(name), consumed, cluster.down, cluster.up)
    broker: Rabbit = request.getfixturevalue("rabbit")
    bound(broker, name)
    return Stream(
        broker.uri(name), lambda expected: [json.loads(message.body) for message in broker.drain(f"{name}-queue")],
        broker.kill, broker.start,
    )  # fmt: skip


def bound(broker: Rabbit, name: str, *, kind: str = "fanout", key: str = "") -> None:
    """An exchange with a queue."""

    async def make(channel: AbstractChannel) -> None:
        exchange = await channel.declare_exchange(name, aio_pika.ExchangeType(kind), durable=True)
        queue = await channel.declare_queue(f"{name}-queue", durable=True)
        await queue.bind(exchange, key)

    broker.do(make)


@contextlib.asynccontextmanager
async def opened(uri: str, troubles: list[str] | None = None, *, spider: bool = False) -> AsyncIterator[Sink]:
    sink = open_sink(uri, worker="worker", on_trouble=None if troubles is None else troubles.append, spider=spider)
    try:
        await sink.open()
        yield sink
    finally:
        await sink.close()


async def refusal(uri: str, work: Callable[[Sink], Awaitable[None]] | None = None) -> str:
    async def use() -> None:
        async with opened(uri) as sink:
            assert work is not None
            await work(sink)

    with pytest.raises(SinkRefused) as refused:
        await use()
    sentence = str(refused.value)
    assert sentence.startswith(("The output ", "The certificate files of the output "))
    assert sentence.endswith(".")
    assert "\n" not in sentence
    for secret in (PASSWORD, "pass%2F", "hunter2"):
        assert secret not in sentence
    return sentence


async def test_a_message_is_the_same_object_as_a_line_of_jsonl(there: Stream) -> None:
    records = [page(1, redirects=(("https://a.example/", 301),)), page(2, error="timeout", status=0, fetched_at=0.0)]
    records.append(page(3, title="half \ud83d of a pair \0"))
    async with opened(there.uri()) as sink:
        await sink.write([page(1, title="an older one of the same key"), *records], b"")
        await sink.commit(())
    messages = sorted(await asyncio.to_thread(there.messages, 3), key=lambda message: message["url"])
    assert messages[:2] == [json.loads(json_line(record)) for record in records[:2]]
    assert (len(messages), messages[2]["title"]) == (3, "half \ufffd of a pair \0")


async def test_a_crawl_with_a_spider_sends_its_items(there: Stream) -> None:
    items = [
        Item(crawl="crawl", url="https://site.example/1", spider="books", number=number, fetched_at=1.0, data={"n": n})
        for number, n in ((1, "one"), (2, [2]))
    ]
    async with opened(there.uri(), spider=True) as sink:
        await sink.write([page(1), *items], b"")
    messages = sorted(await asyncio.to_thread(there.messages, 2), key=lambda message: message["number"])
    assert messages == [json.loads(json_line(item)) for item in items]
    assert [(message["crawl"], message["spider"], message["number"]) for message in messages] == [
        ("crawl", "books", 1),
        ("crawl", "books", 2),
    ]
    assert takes(there.uri(), spider=True) == (Item,)


@pytest.mark.full
@pytest.mark.chaos
async def test_ten_thousand_records_arrive_though_broker_and_writer_die(there: Stream, tmp_path: Path) -> None:
    fleet = Fleet(there, tmp_path, range(10_000), batch=250)  # type: ignore[arg-type]
    work = [asyncio.create_task(fleet.worker(kill_after_seconds=0.4 if worker == 0 else None)) for worker in range(4)]
    await until(lambda: len(fleet.store.taken) > 2000)
    await asyncio.to_thread(there.down)
    await asyncio.sleep(0.2)
    assert not all(task.done() for task in work)
    await asyncio.to_thread(there.up)
    await asyncio.gather(*work)
    assert fleet.kills == 1
    assert fleet.store.taken.keys() == urls(range(10_000))
    keys = await asyncio.to_thread(there.keys, 10_000)
    assert keys.keys() == urls(range(10_000)), "every one at least once"


@pytest.mark.full
@pytest.mark.chaos
async def test_a_sink_waits_for_an_unavailable_broker_and_reports_it(there: Stream) -> None:
    troubles: list[str] = []
    async with opened(there.uri(), troubles) as sink:
        await sink.write([page(1)], b"")
        await asyncio.to_thread(there.down)
        try:
            write = asyncio.create_task(sink.write([page(2)], b""))
            await until(lambda: troubles)
            assert not write.done()
        finally:
            await asyncio.to_thread(there.up)
        await asyncio.wait_for(write, WAIT_SECONDS)
        assert troubles[0].startswith("output ")
        assert troubles[0].endswith("; waiting")
        assert troubles[-1] == ""
    for secret in (PASSWORD, "pass%2F", "hunter2"):
        assert secret not in "".join(troubles)
    keys = await asyncio.to_thread(there.keys, 2)
    assert keys.keys() == urls([1, 2])


async def test_a_sink_can_be_used_after_a_cancelled_write(there: Stream) -> None:
    async with opened(there.uri()) as sink:
        for turns in range(12):
            write = asyncio.create_task(sink.write([page(number) for number in range(100, 200)], b""))
            for _ in range(turns):
                await asyncio.sleep(0)
            write.cancel()
            await asyncio.wait({write})
            await sink.write([page(turns)], b"")
    keys = await asyncio.to_thread(there.keys, 12)
    assert keys.keys() >= urls(range(12))


async def test_a_sink_waits_for_a_broker_that_has_never_been_reachable(valkey: Server) -> None:
    for uri in ("redis://u:hunter2@127.0.0.1:{}/0/x", "kafka://127.0.0.1:{}/x", "amqp://u:hunter2@127.0.0.1:{}/x"):
        troubles: list[str] = []
        sink = open_sink(uri.format(free_port()), worker="worker", on_trouble=troubles.append)
        opening = asyncio.create_task(sink.open())
        await until(lambda troubles=troubles: troubles)
        assert "cannot be reached (" in troubles[0]
        assert "refused" in troubles[0]
        assert "hunter2" not in troubles[0]
        opening.cancel()
        await asyncio.wait({opening})
        await sink.close()


@pytest.mark.chaos
async def test_a_group_whose_response_was_lost_is_sent_again(valkey: Server) -> None:
    troubles: list[str] = []
    async with (
        proxy(valkey.port) as between,
        opened(f"redis://:hunter2@127.0.0.1:{between.port}/0/lost", troubles) as sink,
    ):
        between.swallow_replies = True
        write = asyncio.create_task(sink.write([page(1), page(2)], b""))
        await until(lambda: valkey.ask("LLEN", "lost") == 2)
        assert not write.done()
        between.swallow_replies = False
        between.cut()
        await asyncio.wait_for(write, WAIT_SECONDS)
        assert troubles == []
    assert valkey.ask("LLEN", "lost") == 4, "at least once: readers keep one of a key"


async def test_a_refusal_of_a_redis_server_is_reported_in_one_sentence(valkey: Server) -> None:
    async def write(sink: Sink) -> None:
        await sink.write([page(1)], b"")

    wrong = valkey.url.replace(":hunter2@", ":hunter22@")
    assert (await refusal(f"{wrong}/0/pages")).endswith("; check user and password.")
    assert "NOAUTH" in await refusal(f"redis://{valkey.where}/0/pages")
    valkey.ask("SET", "text", "x")
    assert (await refusal(f"{valkey.url}/0/text", write)).endswith("; choose another name.")
    assert "out of range" in await refusal(f"{valkey.url}/99/pages")
    valkey.ask("ACL", "SETUSER", "reader", "on", ">hunter2", "+@all", "-@write", "~*")
    reader = valkey.url.replace("//:", "//reader:")
    assert (await refusal(f"{reader}/0/pages", write)).endswith("; ask an administrator to grant it.")


async def test_a_sink_waits_for_a_redis_server_without_memory(valkey: Server) -> None:
    troubles: list[str] = []
    async with opened(f"{valkey.url}/0/full", troubles) as sink:
        valkey.ask("CONFIG", "SET", "maxmemory", "1")
        try:
            write = asyncio.create_task(sink.write([page(1)], b""))
            await until(lambda: troubles)
            assert "is out of memory" in troubles[0]
        finally:
            valkey.ask("CONFIG", "SET", "maxmemory", "0")
        await asyncio.wait_for(write, WAIT_SECONDS)
    assert valkey.ask("LLEN", "full") == 1


async def test_a_redis_stream_is_trimmed_to_about_its_maximum_length(valkey: Server) -> None:
    async with opened(f"{valkey.url}/0/short?stream&maxlen=100") as sink:
        await sink.write([page(number) for number in range(2000)], b"")
    assert 100 <= valkey.ask("XLEN", "short") < 400


async def test_a_redis_server_with_tls_is_trusted_by_its_certificate_only(tmp_path: Path) -> None:
    with tls_server(tmp_path / "tls") as (redis, authority):
        uri = f"rediss://localhost:{redis.port}/0/pages"
        async with opened(f"{uri}?ssl_ca_certs={authority}") as sink:
            await sink.write([page(1)], b"")
        assert redis.ask("LLEN", "pages") == 1
        assert "cannot establish a TLS connection" in await refusal(uri)


async def test_a_refusal_of_kafka_is_reported_in_one_sentence(brokers: Kafka) -> None:
    brokers.fail("absent", 3)
    assert (await refusal(brokers.uri("absent"))).endswith("; create the topic first.")
    brokers.fail("forbidden", 29)
    assert (await refusal(brokers.uri("forbidden"))).endswith("; ask an administrator to grant it.")
    login = brokers.uri("pages", "security.protocol=sasl_plaintext").replace("://", "://user:hunter2@")
    assert "; check user and password" in await refusal(login)
    assert "; check its options" in await refusal(brokers.uri("pages", "compression.type=rar"))


async def test_the_text_of_a_page_too_large_for_kafka_is_cut_and_this_is_reported(brokers: Kafka) -> None:
    async with opened(brokers.uri("large")) as sink:
        await sink.write([page(1, text='"é' * 900_000), page(2)], b"")
    messages = await asyncio.to_thread(brokers.consume, "large", lambda received: len(received) == 2)
    first, second = sorted((json.loads(message.value()) for message in messages), key=lambda record: record["url"])
    assert first["text_cut"] is True
    assert 200_000 < len(first["text"]) < 600_000
    assert "text_cut" not in second


@pytest.mark.full
async def test_a_refusal_of_rabbitmq_is_reported_in_one_sentence(rabbit: Rabbit) -> None:
    assert (await refusal(rabbit.uri("x", login="shoal:hunter2"))).endswith(
        " refused the login; check user and password."
    )
    assert (await refusal(rabbit.uri("absent"))).endswith(" does not exist; create it first.")
    assert "refused the virtual host" in await refusal(rabbit.uri("nowhere/x"))

    async def make(channel: AbstractChannel) -> None:
        await channel.declare_exchange("inner", aio_pika.ExchangeType.FANOUT, durable=True, internal=True)

    async def write(sink: Sink) -> None:
        await sink.write([page(1)], b"")

    await asyncio.to_thread(rabbit.do, make)
    assert (await refusal(rabbit.uri("inner"), write)).endswith("; ask an administrator to grant it.")


async def test_rabbitmq_with_tls_is_trusted_by_its_certificate_only(rabbit: Rabbit) -> None:
    await asyncio.to_thread(bound, rabbit, "tls")
    uri = rabbit.uri("tls", port=rabbit.tls_port).replace("amqp://", "amqps://").replace("127.0.0.1", "localhost")
    async with opened(f"{uri}?ssl_ca_certs={rabbit.folder}/ca.pem") as sink:
        await sink.write([page(1)], b"")
    assert len(await asyncio.to_thread(rabbit.drain, "tls-queue")) == 1
    assert "has a certificate that is not trusted" in await refusal(uri)
    assert "cannot be loaded" in await refusal(f"{uri}?ssl_ca_certs=/absent.pem")


async def test_a_rabbitmq_message_is_persistent_and_has_its_key(rabbit: Rabbit) -> None:
    await asyncio.to_thread(bound, rabbit, "topics", kind="topic", key="pages.#")
    async with opened(rabbit.uri("topics?routing_key=pages.new")) as sink:
        await sink.write([page(1)], b"")
        await sink.write([page(1)], b"")
    first, second = await asyncio.to_thread(rabbit.drain, "topics-queue")
    assert first.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    assert (first.routing_key, first.content_type) == ("pages.new", "application/json")
    assert first.headers == {"crawl": "crawl", "url": "https://site.example/1"}
    assert first.message_id == second.message_id
    async with opened(rabbit.uri("?routing_key=topics-queue")) as sink:
        await sink.write([page(2)], b"")
    assert len(await asyncio.to_thread(rabbit.drain, "topics-queue")) == 1


async def test_an_unroutable_message_waits_for_a_queue(rabbit: Rabbit) -> None:
    async def make(channel: AbstractChannel) -> None:
        await channel.declare_exchange("lonely", aio_pika.ExchangeType.FANOUT, durable=True)

    await asyncio.to_thread(rabbit.do, make)
    troubles: list[str] = []
    async with opened(rabbit.uri("lonely"), troubles) as sink:
        write = asyncio.create_task(sink.write([page(1), page(2)], b""))
        await until(lambda: troubles)
        assert troubles[0].endswith("has no queue that takes its messages; bind one; waiting")
        await asyncio.to_thread(bound, rabbit, "lonely")
        await asyncio.wait_for(write, WAIT_SECONDS)
    assert len(await asyncio.to_thread(rabbit.drain, "lonely-queue")) >= 2


@pytest.mark.parametrize(
    ("typed", "full"),
    [
        ("redis://h/0/pages", "redis://h/0/pages"),
        ("redis://:p%2Fw@h:6380/2/a:b/c?stream&maxlen=9", "redis://:p%2Fw@h:6380/2/a:b/c?stream=&maxlen=9"),
        ("REDISS://h/0/pages", "rediss://h/0/pages"),
        ("kafka://a,b:9093,[::1]:9092/pages.new", "kafka://a,b:9093,[::1]:9092/pages.new"),
        ("amqp://h/pages", "amqp://h/pages"),
        ("amqps://u:p@h:5671/vhost/pages?routing_key=a.b", "amqps://u:p@h:5671/vhost/pages?routing_key=a.b"),
        ("amqp://h/?routing_key=queue", "amqp://h/?routing_key=queue"),
    ],
)
def test_an_output_address_has_one_canonical_form(typed: str, full: str) -> None:
    assert check_output(typed) == full
    assert check_output(full) == full
    assert not is_local(full)


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("redis://:secret@h/0", "is not a valid address; write redis://USER:PASSWORD@HOST:6379/0/NAME"),
        ("redis://:secret@h/pages", "is not a valid address"),
        ("redis:///0/pages", "is not a valid address"),
        ("redis://:sec/ret@h/0/pages", "%2F"),
        ("redis://:secret@h/0/pages?maxlen=9", "has an invalid maxlen"),
        ("redis://:secret@h/0/pages?streem", "unknown option 'streem'; valid options are stream, maxlen."),
        ("kafka://h/a/b", "is not a valid address; write kafka://"),
        ("kafka://h/", "is not a valid address"),
        ("kafka://u:secret@h/a?plugin.library.paths=/tmp/x.so", "unknown option 'plugin.library.paths'"),
        ("amqp://u:secret@h/", "is not a valid address; write amqp://"),
        ("amqp://u:secret@a,b/x", "is not a valid address"),
        ("amqp://u:secret@h/a/b/c", "is not a valid address"),
    ],
)
def test_an_invalid_address_is_refused_without_showing_its_secret(typed: str, sentence: str) -> None:
    with pytest.raises(SinkRefused) as refused:
        check_output(typed)
    assert sentence in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "ret@" not in str(refused.value)


@pytest.mark.parametrize(
    ("typed", "package", "extra"),
    [("kafka://u:secret@h/x", "confluent_kafka", "kafka"), ("amqps://u:secret@h/x", "aio_pika", "amqp")],
)
def test_a_missing_package_is_reported_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch, typed: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SinkRefused, match=rf"needs the package {package}, .*pip install 'shoal\[{extra}\]'\.\Z"):
        check_output(typed)


def test_a_batch_is_sent_in_groups_of_bounded_size() -> None:
    texts = (10, 9_000_000, 10, 4_000_000, 3_900_000)
    messages = (stream.message_of(page(number, text="x" * length)) for number, length in enumerate(texts))
    assert [len(group) for group in stream.groups(messages)] == [1, 1, 3]
    small = stream.message_of(page(1))
    assert [len(group) for group in stream.groups(iter([small] * 2500))] == [1000, 1000, 500]
    assert list(stream.groups(iter(()))) == []
    assert msgspec.json.decode(small.body)["url"] == page(1).url
