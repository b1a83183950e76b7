"""No message stops a bridge: neither by its reply, nor by its dead letter, nor by its bytes."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from shoal.listen.source import MAX_LETTER_BYTES, ReceivedMessage, dead_letter
from tests.brokers import Kafka, Rabbit
from tests.listen.test_bridges import crawls
from tests.servers import Server, server, wait_until
from tests.system.shell import Running, Shell, command_line

GOOD = b'{"name": "good", "seeds": ["https://a.example/"]}'
TOPIC_AUTHORIZATION_FAILED = 29


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path / "store") as valkey:
        yield valkey


@pytest.fixture
def bridge(shell: Shell, store: Server) -> Any:
    (shell.folder / "shoal.toml").write_text('[outputs]\ndefault = "kafka://127.0.0.1:1/pages"\n')

    def start(uri: str) -> Running:
        running = shell.start("listen", uri, "--store", store.url)
        running.wait_for_output("Listening to ")
        return running

    return start


def action(reply: str | None = None, **fields: str) -> bytes:
    request = {"action": "info", "appid": "a", "uuid": "b", **fields}
    return json.dumps(request | ({"reply": reply} if reply else {})).encode()


def test_a_reply_is_sent_only_to_names_that_the_operator_allows(bridge: Any, store: Server, valkey: Server) -> None:
    valkey.ask("SET", "secret", "1")
    names = ["incoming-bridges", "incoming", "incoming-dead", "secret", "x" * 300]
    bad = [action(name) for name in names]
    good = [action("incoming-replies"), action("incoming-replies:mine")]
    valkey.ask("LPUSH", "incoming", *bad, *good, GOOD)
    running = bridge(f"{valkey.url}/0/incoming")
    wait_until(lambda: crawls(store), "the request behind them is a crawl")
    letters = [json.loads(letter) for letter in valkey.ask("LRANGE", "incoming-dead", 0, -1)]
    assert [letter["message"].encode() for letter in letters] == bad
    assert all("reply must" in letter["reason"] for letter in letters)
    assert "incoming-replies" in letters[0]["reason"]
    assert [valkey.ask("LLEN", name) for name in ("incoming-replies", "incoming-replies:mine")] == [1, 1]
    assert running.end(signal.SIGTERM).code == 0

    valkey.ask("LPUSH", "incoming", action("desk-7"), action("incoming-replies:mine"))
    running = bridge(f"{valkey.url}/0/incoming?reply_prefix=desk-,hall-")
    wait_until(lambda: valkey.ask("LLEN", "incoming-dead") == len(bad) + 1, "the prefixes replace the default")
    assert valkey.ask("LLEN", "desk-7") == 1
    assert running.end(signal.SIGTERM).code == 0


@pytest.mark.parametrize("query", ["", "?stream"])
def test_a_reply_that_redis_refuses_becomes_a_dead_letter(
    query: str, bridge: Any, store: Server, valkey: Server
) -> None:
    # The server is the module's: another value of the parameter has left letters there.
    valkey.ask("DEL", "asked", "asked-dead")
    valkey.ask("SET", "asked-replies:taken", "a string")
    for body in (action("asked-replies:taken"), b'{"action": "\xff"}', GOOD):
        valkey.ask("XADD", "asked", "*", "json", body) if query else valkey.ask("LPUSH", "asked", body)
    running = bridge(f"{valkey.url}/0/asked{query}")
    wait_until(lambda: crawls(store), "the request behind them is a crawl")
    wait_until(lambda: valkey.ask("LLEN", "asked-dead") == 2, "both others are dead letters")
    letters = [json.loads(letter) for letter in valkey.ask("LRANGE", "asked-dead", 0, -1)]
    assert "its reply cannot be sent" in letters[0]["reason"]
    assert "WRONGTYPE" in letters[0]["reason"]
    assert "not JSON" in letters[1]["reason"]
    assert running.end(signal.SIGTERM).code == 0


def test_a_dead_letter_that_is_refused_is_logged_with_its_hash(
    bridge: Any, shell: Shell, store: Server, valkey: Server
) -> None:
    shell.environ["SHOAL_LOG"] = "json"
    valkey.ask("SET", "lost-dead", "a string")
    valkey.ask("LPUSH", "lost", b"no request", GOOD)
    running = bridge(f"{valkey.url}/0/lost")
    wait_until(lambda: crawls(store), "the request behind it is a crawl")
    ended = running.end(signal.SIGTERM)
    assert ended.code == 0
    assert hashlib.sha256(b"no request").hexdigest() in ended.err
    assert "request.dropped" in ended.err


def test_a_bridge_waits_until_a_deleted_stream_exists_again(bridge: Any, store: Server, valkey: Server) -> None:
    running = bridge(f"{valkey.url}/0/gone?stream")
    wait_until(lambda: valkey.ask("EXISTS", "gone"), "the bridge has made the stream")
    valkey.ask("DEL", "gone")
    running.wait_for_output("has lost its stream; retrying")
    valkey.ask("XADD", "gone", "*", "json", GOOD)
    wait_until(lambda: crawls(store), "the request is a crawl")
    assert running.end(signal.SIGTERM).code == 0


@pytest.mark.full
def test_long_and_refused_messages_do_not_stop_a_kafka_bridge(bridge: Any, store: Server, brokers: Kafka) -> None:
    brokers.produce("hostile", [])
    brokers.produce("hostile-replies-no", [])
    brokers.fail("hostile-replies-no", TOPIC_AUTHORIZATION_FAILED)
    hostile = [b"\xff" * 400_000, action("hostile-replies-no")]
    brokers.produce("hostile", [*hostile, GOOD])
    running = bridge(brokers.uri("hostile"))
    messages = brokers.consume("hostile-dead", lambda received: len(received) >= len(hostile))
    letters = sorted((json.loads(message.value()) for message in messages), key=lambda letter: len(letter["message"]))
    wait_until(lambda: crawls(store), "the request behind them is a crawl")
    cut = letters[-1]
    assert (cut["cut"], cut["bytes"], cut["sha256"]) == (True, 400_000, hashlib.sha256(hostile[0]).hexdigest())
    assert cut["message"].startswith(r"\xff\xff")
    assert running.end(signal.SIGTERM).code == 0


@pytest.mark.variant
def test_refused_messages_do_not_stop_an_amqp_bridge(bridge: Any, store: Server, rabbit: Rabbit) -> None:
    async def send(channel: AbstractChannel) -> None:
        await channel.declare_queue("desk", durable=True)
        for body, reply_to in ((action(), "desk"), (action(), "amq.gen-gone"), (GOOD, "desk")):
            message = aio_pika.Message(body, reply_to=reply_to, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(message, "desk")

    rabbit.do(send)
    running = bridge(rabbit.uri("desk?dead=desk-letters"))
    wait_until(lambda: crawls(store), "the request behind them is a crawl")
    (letter,) = [json.loads(message.body) for message in rabbit.drain("desk-letters")]
    assert "reply must start with desk-replies" in letter["reason"]
    assert rabbit.length("desk") == 0
    assert running.end(signal.SIGTERM).code == 0


def test_a_dead_letter_has_the_whole_message_if_the_broker_accepts_its_size() -> None:
    whole = json.loads(dead_letter(ReceivedMessage(b"x" * 800_000, "", None), "why"))
    assert (whole["message"], "cut" in whole) == ("x" * 800_000, False)
    for body in (b"\xff" * 4_000_000, b"\x00" * 4_000_000, b'"' * 4_000_000):
        assert len(dead_letter(ReceivedMessage(body, "", None), "\x00" * 10**6)) <= MAX_LETTER_BYTES


def test_the_password_of_a_source_is_not_in_the_process_list(shell: Shell, store: Server, tmp_path: Path) -> None:
    with server(tmp_path / "broker", options={"requirepass": "hunter2"}, ready=False) as broker:
        (shell.folder / "shoal.toml").write_text(f'[sources]\ndesk = "redis://:hunter2@{broker.where}/0/desk"\n')
        running = shell.start("listen", "desk", "--store", store.url)
        running.wait_for_output("Listening to redis://***@")
        assert b"hunter2" not in command_line(running.process.pid)
        assert running.end(signal.SIGTERM).code == 0


def test_a_bridge_answers_statistics_requests_and_does_not_change_hosts(
    bridge: Any, store: Server, valkey: Server
) -> None:
    stats = b'{"stats": "queue", "appid": "a", "uuid": "b"}'
    block = action(action="blacklist-update", domain="a.example")
    valkey.ask("LPUSH", "numbers", stats, block, GOOD)
    running = bridge(f"{valkey.url}/0/numbers")
    wait_until(lambda: crawls(store), "the request behind them is a crawl")
    wait_until(lambda: valkey.ask("LLEN", "numbers-dead"), "the block is refused")
    (reply,) = [json.loads(reply) for reply in valkey.ask("LRANGE", "numbers-replies", 0, -1)]
    assert (reply["stats"], reply["queues"]) == ("queue", {"total_backlog": 0})
    (letter,) = [json.loads(letter) for letter in valkey.ask("LRANGE", "numbers-dead", 0, -1)]
    assert "only an administrator can change hosts" in letter["reason"]
    assert running.end(signal.SIGTERM).code == 0
