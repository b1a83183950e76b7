"""Bridges: a request is one crawl, whatever dies in between; an invalid one is kept with the reason."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from shoal.errors import InvalidInput
from shoal.frontier import Frontier
from shoal.listen import open_source
from tests.brokers import PASSWORD, Kafka, Rabbit
from tests.servers import Server, server, wait_until
from tests.site.site import serving
from tests.system.shell import LOCAL, Running, Shell

COUNT = 1000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Server]:
    """Where the crawls go: another server than the one that requests come from."""
    with server(tmp_path / "store") as valkey:
        yield valkey


@pytest.fixture(autouse=True)
def default(shell: Shell) -> None:
    """Where pages of requests go that name no output, as those of Scrapy Cluster do not."""
    (shell.folder / "shoal.toml").write_text('[outputs]\ndefault = "kafka://127.0.0.1:1/pages"\n')


@dataclass
class Post:
    """One source of a technology: how messages get in, and what has come out."""

    uri: str
    send: Callable[[list[bytes]], None]
    read: Callable[[str, int], list[dict[str, Any]]]
    name: str


def restart(broker: Any) -> None:
    broker.kill()
    broker.start()


_OTHER_SOURCES = [pytest.param(kind, marks=pytest.mark.variant) for kind in ("kafka", "amqp")]


@pytest.fixture(params=["list", "stream", *_OTHER_SOURCES])
def post(request: pytest.FixtureRequest) -> Post:
    name = f"crawls-{abs(hash(request.node.name)):x}"
    kind = request.param
    if kind in ("list", "stream"):
        valkey: Server = request.getfixturevalue("valkey")

        def push(bodies: list[bytes]) -> None:
            if kind == "list":
                valkey.ask("LPUSH", name, *bodies)
            else:
                for body in bodies:
                    valkey.ask("XADD", name, "*", "json", body)

        def pushed(place: str, count: int) -> list[dict[str, Any]]:
            wait_until(lambda: valkey.ask("LLEN", f"{name}-{place}") >= count, f"{count} in {place}")
            return [json.loads(body) for body in valkey.ask("LRANGE", f"{name}-{place}", 0, -1)]

        return Post(
            f"{valkey.url}/0/{name}" + ("?stream&group=bridges" if kind == "stream" else ""), push, pushed, name
        )
    if kind == "kafka":
        cluster: Kafka = request.getfixturevalue("brokers")
        cluster.produce(name, [])
        return Post(
            cluster.uri(name, "group=bridges"), lambda bodies: cluster.produce(name, bodies),
            lambda place, count: [
                json.loads(message.value())
                for message in cluster.consume(f"{name}-{place}", lambda received: len(received) >= count)
            ], name,
        )  # fmt: skip
    broker: Rabbit = request.getfixturevalue("rabbit")

    def publish(bodies: list[bytes]) -> None:
        async def run(channel: AbstractChannel) -> None:
            await channel.declare_queue(name, durable=True)
            for body in bodies:
                message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
                await channel.default_exchange.publish(message, name)

        broker.do(run)

    def received(place: str, count: int) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []

        def enough() -> bool:
            try:
                messages.extend(json.loads(message.body) for message in broker.drain(f"{name}-{place}"))
            except aio_pika.exceptions.ChannelNotFoundEntity:
                return False
            return len(messages) >= count

        wait_until(enough, f"{count} in {place}")
        return messages

    return Post(broker.uri(name), publish, received, name)


def listening(shell: Shell, post: Post, store: Server, **how: Any) -> Running:
    running = shell.start("listen", how.get("uri", post.uri), "--store", store.url)
    running.wait_for_output("Listening to ")
    return running


def crawls(store: Server) -> Counter[str]:
    async def ids() -> Counter[str]:
        async with await Frontier.open(store.url) as frontier:
            return Counter([crawl.id async for crawl in frontier.crawls.all()])

    return asyncio.run(ids())


def admitted(store: Server, names: set[str]) -> set[int]:
    """How many URLs these crawls were given."""

    async def counts() -> set[int]:
        async with await Frontier.open(store.url) as frontier:
            return {(await frontier.crawls.count(name)).admitted for name in names}

    return asyncio.run(counts())


def request_of(number: int) -> bytes:
    """Every third is one of Scrapy Cluster's."""
    if number % 3:
        return json.dumps({"name": f"crawl-{number}", "seeds": [f"https://site{number}.example/"]}).encode()
    request = {"url": f"https://site{number}.example/", "appid": "app", "crawlid": str(number), "maxdepth": 1}
    return json.dumps(request).encode()


def names(numbers: range) -> set[str]:
    return {f"crawl-{number}" if number % 3 else f"app:{number}" for number in numbers}


@pytest.mark.full
@pytest.mark.chaos
def test_each_of_a_thousand_requests_is_one_crawl_though_bridge_and_broker_die(
    post: Post, shell: Shell, store: Server, request: pytest.FixtureRequest
) -> None:
    first = listening(shell, post, store)
    post.send([request_of(number) for number in range(100)])
    wait_until(lambda: len(crawls(store)) == 100, "the first are stored")
    store.freeze()
    post.send([request_of(number) for number in range(100, COUNT - 100)])
    # A bridge that has taken messages and waits for the store looks from outside like one that has not.
    time.sleep(1.5)
    first.end(signal.SIGKILL)
    store.thaw()
    assert len(crawls(store)) < COUNT - 100, "it was in the middle of something"
    second = listening(shell, post, store)
    wait_until(lambda: second.stderr_lines[1:], "the second continues")
    if "kafka" not in post.uri:
        # Kafka's brokers keep everything in memory.
        restart(request.getfixturevalue("rabbit" if "amqp" in post.uri else "valkey"))
    # Some of them for the second time.
    post.send([request_of(number) for number in range(COUNT - 200, COUNT)])
    wait_until(lambda: len(crawls(store)) >= COUNT, "all are stored")
    wait_until(lambda: admitted(store, names(range(COUNT))) == {1}, "with their URLs")
    ended = second.end(signal.SIGTERM)
    assert ended.code == 0, ended.err
    assert crawls(store) == Counter(names(range(COUNT)))
    for secret in ("hunter2", PASSWORD, "pass%2F"):
        assert secret not in ended.err + "".join(first.stderr_lines)


def test_an_invalid_message_is_kept_with_the_reason_and_the_bridge_continues(
    post: Post, shell: Shell, store: Server
) -> None:
    bad = {
        b"no json": "The request is not JSON",
        b"[1]": "it must be a JSON object",
        b'{"seeds": []}': "The request cannot be used",
        b'{"seeds": ["javascript:alert(1)"], "name": "x"}': "javascript",
        b'{"seeds": ["https://a.example/"], "spidr": "x"}': "spidr",
        b'{"seeds": ["https://a.example/"], "ignore_robots": true}': "only an administrator",
        b'{"seeds": ["https://a.example/"], "outputs": ["/etc/passwd.db"]}': "must be names in [outputs]",
        b'{"seeds": ["https://a.example/"], "outputs": ["redis://127.0.0.1:1/7/key"]}': "must be names in [outputs]",
        b'{"seeds": ["https://a.example/"], "outputs": ["absent"]}': "Unknown output 'absent'; the outputs",
        b'{"name": "good", "seeds": ["https://other.example/"]}': "good",
        b"\xff\xfe" + b"{" * 3000: "The request is not JSON",
    }
    good = b'{"name": "good", "seeds": ["https://a.example/"]}'
    post.send([good])
    running = listening(shell, post, store)
    wait_until(lambda: "good" in crawls(store), "the first is stored")
    post.send([*bad, good])
    letters = post.read("dead", len(bad))
    reasons = {letter["message"].encode(): letter["reason"] for letter in letters}
    assert len(letters) == len(bad)
    for message, reason in bad.items():
        assert reason in reasons[message.decode(errors="backslashreplace").encode()]
    ended = running.end(signal.SIGTERM)
    assert ended.code == 0
    assert "11 requests refused" in ended.err
    assert crawls(store) == Counter(["good"])


def test_a_request_without_an_output_is_kept_with_the_reason(shell: Shell, store: Server, valkey: Server) -> None:
    (shell.folder / "shoal.toml").unlink()
    own = {"name": "own", "seeds": ["https://a.example/"]}
    named = {**own, "name": "named", "outputs": ["main"]}
    valkey.ask("LPUSH", "homeless", request_of(3), json.dumps(own).encode(), json.dumps(named).encode())
    running = shell.start("listen", f"{valkey.url}/0/homeless", "--store", store.url)
    wait_until(lambda: crawls(store) == Counter(["named"]), "what says where its pages go is a crawl")
    assert running.end(signal.SIGTERM).code == 0
    letters = [json.loads(letter) for letter in valkey.ask("LRANGE", "homeless-dead", 0, -1)]
    assert {json.loads(letter["message"]).get("name") for letter in letters} == {None, "own"}
    for letter in letters:
        assert '"outputs": ["NAME"] in the request, or name an output `default` in [outputs]' in letter["reason"]


def test_actions_are_answered(post: Post, shell: Shell, store: Server) -> None:
    ask = {"appid": "app", "uuid": "u1", "crawlid": "3"}
    absent = {"appid": "app", "uuid": "u2", "crawlid": "absent"}
    post.send([request_of(3)])
    if "amqp" in post.uri:
        # A user creates such a queue.
        post_queue(post)
    running = listening(shell, post, store)
    wait_until(lambda: crawls(store), "the crawl is there")
    post.send([json.dumps({"action": "info", **action}).encode() for action in (ask, absent)])
    replies = {reply["uuid"]: reply for reply in post.read("replies", 2)}
    assert (replies["u1"]["crawlid"], replies["u1"]["total_pending"]) == ("3", 1)
    assert "has no crawl 'absent'" in replies["u2"]["error"]
    post.send([json.dumps({"action": "stop", **ask, "reply": f"{post.name}-replies-own"}).encode()])
    (own,) = post.read("replies-own", 1)
    assert (own["action"], own["total_purged"]) == ("stop", 1)
    assert running.end(signal.SIGTERM).code == 0


@pytest.mark.full
def test_a_crawl_that_expires_is_reported_to_its_source_though_the_bridge_was_killed(
    post: Post, shell: Shell, store: Server
) -> None:  # fmt: skip
    expires = time.time() + 8
    request = {"url": "https://site.example/", "appid": "app", "crawlid": "a b", "expires": expires}
    post.send([json.dumps(request).encode(), request_of(3)])
    if "amqp" in post.uri:
        post_queue(post)
    running = listening(shell, post, store)
    # A crawl exists before its URL does. A bridge that is killed in between reads the message again, perhaps too late.
    wait_until(lambda: len(ids := {*crawls(store)}) == 2 and admitted(store, ids) == {1}, "both crawls have their URL")
    running.end(signal.SIGKILL)
    running = listening(shell, post, store)
    (expired,) = post.read("replies", 1)
    assert expired.pop("server_time") >= int(expires)
    assert expired == {
        "crawlid": "a b", "appid": "app", "spiderid": "link", "action": "expired", "total_expired": 1
    }  # fmt: skip
    running.end(signal.SIGTERM)
    # A bridge that starts later sends it no second time: the reply of an action is the next message.
    running = listening(shell, post, store)
    post.send([json.dumps({"action": "info", "appid": "app", "uuid": "u1", "crawlid": "3"}).encode()])
    messages = post.read("replies", 1 if "amqp" in post.uri else 2)
    assert [message.get("uuid") for message in messages] == [None, "u1"][-len(messages) :]
    assert running.end(signal.SIGTERM).code == 0


def test_an_action_is_executed_after_the_requests_before_it(shell: Shell, store: Server, valkey: Server) -> None:
    messages = [
        message
        for number in range(0, 60, 3)
        for message in (
            request_of(number),
            json.dumps({"action": "stop", "appid": "app", "uuid": str(number), "crawlid": str(number)}).encode(),
        )
    ]
    valkey.ask("LPUSH", "ordered", *messages)
    running = shell.start("listen", f"{valkey.url}/0/ordered", "--store", store.url)
    wait_until(lambda: valkey.ask("LLEN", "ordered-replies") == 20, "all are answered")
    replies = [json.loads(reply) for reply in valkey.ask("LRANGE", "ordered-replies", 0, -1)]
    assert [reply["total_purged"] for reply in replies] == [1] * 20
    assert running.end(signal.SIGTERM).code == 0


def post_queue(post: Post) -> None:
    async def make() -> None:
        async with await aio_pika.connect(post.uri.rpartition("/")[0] + "/%2F") as connection:
            await (await connection.channel()).declare_queue(f"{post.name}-replies-own", durable=True)

    asyncio.run(make())


def test_each_request_without_a_name_is_one_crawl(shell: Shell, store: Server, valkey: Server) -> None:
    body = b'{"seeds": ["https://a.example/"]}'
    valkey.ask("LPUSH", "nameless", body, body)
    uri = f"{valkey.url}/0/nameless"
    running = shell.start("listen", uri, "--store", store.url)
    wait_until(lambda: len(crawls(store)) == 2, "the same request twice is two crawls")
    # As if it had been killed between storing and removing them.
    running.end(signal.SIGKILL)
    held = [b"1-2-1 " + body, b"1-2-2 " + body]
    valkey.ask("RPUSH", "nameless-taken:dead", *held)
    valkey.ask("ZADD", "nameless-bridges", 1, "dead")
    for _ in range(2):
        again = shell.start("listen", uri, "--store", store.url)
        again.wait_for_output("Listening to ")
        wait_until(lambda: not valkey.ask("EXISTS", "nameless-taken:dead"), "the next takes what a dead bridge held")
        wait_until(lambda: len(crawls(store)) == 4, "and stores it")
        assert again.end(signal.SIGTERM).code == 0
        assert len(crawls(store)) == 4
        valkey.ask("RPUSH", "nameless-taken:dead", *held)
        valkey.ask("ZADD", "nameless-bridges", 1, "dead")


def test_a_request_results_in_one_message_per_page(
    shell: Shell, store: Server, valkey: Server, rabbit: Rabbit, brokers: Kafka, tmp_path: Path
) -> None:
    """From a message to messages: a bridge, a worker, a site, and an output of each technology."""

    async def make(channel: AbstractChannel) -> None:
        await channel.declare_queue("pages", durable=True)

    rabbit.do(make)
    with serving(tmp_path / "site", hosts=3) as site:
        (host,) = site.take()
        tree = site.plant(20, [host])
        outputs = [
            f"{valkey.url}/0/pages", f"{valkey.url}/0/pages-stream?stream", rabbit.uri("?routing_key=pages"),
            brokers.uri("pages"),
        ]  # fmt: skip
        named = dict(zip(("list", "stream", "queue", "topic"), outputs, strict=True))
        lines = "".join(f'{name} = "{uri}"\n' for name, uri in named.items())
        (shell.folder / "shoal.toml").write_text(f"[outputs]\n{lines}")
        request = {"name": "whole", "seeds": [tree.url(0)], "delay_seconds": 0, "outputs": list(named)}
        valkey.ask("LPUSH", "requests", json.dumps(request).encode())
        bridge = shell.start("listen", f"{valkey.url}/0/requests", "--store", store.url)
        worker = shell.start("worker", "--store", store.url, "--workers", 1, *LOCAL)
        wait_until(
            lambda: valkey.ask("LLEN", "pages") >= 20,
            f"all pages are there; {worker.stderr_lines} {bridge.stderr_lines}",
        )
        assert worker.end(signal.SIGTERM).code == 0
        assert bridge.end(signal.SIGTERM).code == 0
        seen = [
            valkey.ask("LRANGE", "pages", 0, -1),
            [entry[1][3] for entry in valkey.ask("XRANGE", "pages-stream", "-", "+")],
            [message.body for message in rabbit.drain("pages")],
            [
                message.value()
                for message in brokers.consume(
                    "pages", lambda received: len({message.key() for message in received}) >= 20
                )
            ],
        ]
        for bodies in seen:
            rows = [json.loads(body) for body in bodies]
            assert {row["url"] for row in rows if row["status"] == 200} == tree.walk()
            assert {row["crawl"] for row in rows} == {"whole"}


def test_a_bridge_waits_for_an_unavailable_store(shell: Shell, store: Server, valkey: Server) -> None:
    shell.environ["SHOAL_STORE_TIMEOUT_SECONDS"] = "1"
    running = shell.start("listen", f"{valkey.url}/0/patient", "--store", store.url)
    running.wait_for_output("Listening to ")
    store.kill()
    valkey.ask("LPUSH", "patient", request_of(1), b"bad")
    running.wait_for_output("did not respond")
    store.start()
    wait_until(lambda: crawls(store) == Counter(["crawl-1"]), "it is stored in the end")
    assert running.end(signal.SIGTERM).code == 0
    assert valkey.ask("LLEN", "patient-dead") == 1


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("redis://:hunter2@127.0.0.1/0", "is not a valid address"),
        ("http://u:hunter2@h/x", "Unsupported source 'http://***@h/x'"),
        ("kafka://h/topic?grp=x", "unknown option 'grp'"),
        ("amqp://u:hunter2@h/", "is not a valid address"),
    ],
)
def test_an_invalid_source_is_refused_in_one_sentence(shell: Shell, source: str, sentence: str) -> None:
    result = shell.run("listen", source)
    assert result.code == 2
    assert sentence in result.err
    assert "hunter2" not in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "package", "extra"),
    [("kafka://u:hunter2@h/x", "confluent_kafka", "kafka"), ("amqps://u:hunter2@h/x", "aio_pika", "amqp")],
)
def test_a_missing_package_is_reported_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch, source: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidInput, match=rf"\*\*\*@h/x needs the package {package}, .*'shoal\[{extra}\]'\.\Z"):
        open_source(source)


def test_a_wrong_password_stops_the_bridge_with_one_sentence(
    shell: Shell, store: Server, valkey: Server, rabbit: Rabbit, brokers: Kafka
) -> None:
    login = "security.protocol=sasl_plaintext"
    for source in (
        f"redis://:hunter22@{valkey.where}/0/x", rabbit.uri("x", login="shoal:hunter22"),
        brokers.uri("x", login).replace("://", "://u:hunter22@"),
    ):  # fmt: skip
        result = shell.run("listen", source, "--store", store.url)
        assert result.code == 1, result.err
        assert "check user and password" in result.err.splitlines()[-1]
        assert "hunter22" not in result.err
