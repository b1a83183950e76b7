"""Starts message brokers for tests: RabbitMQ in its own folder, and librdkafka's own Kafka brokers, stopped by pid.

There is no Kafka in Debian. librdkafka carries brokers for its tests, which speak the real protocol over TCP, keep what
they get in memory, and can be taken down and up again: `python -m tests.brokers` is a process with three of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import aio_pika
import confluent_kafka
import trustme
from aio_pika.abc import AbstractChannel
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.servers import WAIT_SECONDS, free_port, program, wait_until

PASSWORD = "pass/w@rd"
T = TypeVar("T")


@dataclass
class Rabbit:
    """One broker. `channel` talks to it past everything under test."""

    folder: Path
    argv: list[str]
    port: int
    tls_port: int
    environ: dict[str, str]
    user: dict[str, Any]
    process: subprocess.Popen[bytes] | None = field(default=None)

    def uri(self, path: str, *, login: str = f"shoal:{quote(PASSWORD, safe='')}", port: int = 0) -> str:
        return f"amqp://{login}@127.0.0.1:{port or self.port}/{path}"

    def start(self) -> None:
        with (self.folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(
                self.argv, cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, **self.user,
            )  # fmt: skip
        wait_until(self.responds, f"RabbitMQ answers; see {self.folder}")

    def responds(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log.txt").read_text()[-2000:]
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", self.port)):
                return False
            probe.sendall(b"AMQP\0\0\x09\x01")
            with contextlib.suppress(OSError):
                return probe.recv(1) == b"\x01"
        return False

    def kill(self) -> None:
        """With its children: the process that was started is a shell."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(WAIT_SECONDS)
            wait_until(lambda: not self._is_open(), "the port is free")

    def _is_open(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def do(self, work: Callable[[AbstractChannel], Awaitable[T]]) -> T:
        async def run() -> T:
            async with await aio_pika.connect(self.uri("%2F")) as connection:
                return await work(await connection.channel())

        return asyncio.run(run())

    def drain(self, queue: str) -> list[aio_pika.abc.AbstractIncomingMessage]:
        """Take all messages of a queue."""

        async def take(channel: AbstractChannel) -> list[aio_pika.abc.AbstractIncomingMessage]:
            declared = await channel.declare_queue(queue, passive=True)
            count = declared.declaration_result.message_count or 0
            arrived: asyncio.Queue[aio_pika.abc.AbstractIncomingMessage] = asyncio.Queue()
            await declared.consume(arrived.put)
            taken = [await asyncio.wait_for(arrived.get(), WAIT_SECONDS) for _ in range(count)]
            if taken:
                # Those that came meanwhile go back.
                await taken[-1].ack(multiple=True)
            return taken

        return self.do(take)

    def length(self, queue: str) -> int:
        async def count(channel: AbstractChannel) -> int:
            return (await channel.declare_queue(queue, passive=True)).declaration_result.message_count or 0

        return self.do(count)


@contextlib.contextmanager
def rabbitmq() -> Iterator[Rabbit]:
    """A broker with the administrator `shoal` and its own port mapper, so that it meets no other one."""
    install = "apt-get install rabbitmq-server"
    place = "/usr/lib/rabbitmq/bin:" + os.environ["PATH"] + ":/usr/sbin"
    server = shutil.which("rabbitmq-server", path=place) or program("rabbitmq-server", install)
    mapper = program("epmd", install)
    folder = Path(tempfile.mkdtemp(prefix="shoal-test-rabbit-"))
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        # The broker runs as the user that its package made for it.
        entry = pwd.getpwnam("rabbitmq")
        user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    port, tls_port, mapper_port = free_port(), free_port(), free_port()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    (folder / "plugins").write_text("[].")
    (folder / "rabbitmq.conf").write_text(
        f"default_user = shoal\ndefault_pass = {PASSWORD}\nloopback_users = none\nlog.file.level = warning\n"
        f"listeners.ssl.1 = 127.0.0.1:{tls_port}\nssl_options.cacertfile = {folder}/ca.pem\n"
        f"ssl_options.certfile = {folder}/cert.pem\nssl_options.keyfile = {folder}/key.pem\n"
    )
    environ = {
        "PATH": place, "HOME": str(folder), "LANG": "C.UTF-8", "ERL_EPMD_PORT": str(mapper_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_NODENAME": f"shoal{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()), "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"), "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"), "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        # Idle schedulers sleep instead of spinning.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
    }  # fmt: skip
    # Started here and not by the broker, which would leave it behind.
    names = subprocess.Popen(
        [mapper, "-port", str(mapper_port), "-address", "127.0.0.1"], env=environ, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, **user,
    )  # fmt: skip
    broker = Rabbit(folder, [server], port, tls_port, environ, user)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        names.kill()
        names.wait()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Kafka:
    """Three brokers in one process. `consume` reads them past everything under test."""

    process: subprocess.Popen[str]
    brokers: str

    def uri(self, topic: str, query: str = "") -> str:
        return f"kafka://{self.brokers}/{topic}" + (f"?{query}" if query else "")

    def call(self, function: str, *args: object) -> str:
        """Call a function of librdkafka on the brokers."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(function, *args, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def down(self) -> None:
        for broker in (1, 2, 3):
            self.call("rd_kafka_mock_broker_set_down", broker)

    def up(self) -> None:
        for broker in (1, 2, 3):
            self.call("rd_kafka_mock_broker_set_up", broker)

    def fail(self, topic: str, error: int) -> None:
        self.call("rd_kafka_mock_topic_set_error", topic, error)

    def produce(self, topic: str, bodies: list[bytes]) -> None:
        producer = Producer({"bootstrap.servers": self.brokers})
        for body in bodies:
            producer.produce(topic, body)
        assert producer.flush(30) == 0

    def consume(self, topic: str, until: Callable[[list[Any]], bool]) -> list[Any]:
        """Read the topic from its beginning until it is enough."""
        consumer = Consumer(
            {"bootstrap.servers": self.brokers, "group.id": f"test-{os.urandom(4).hex()}", "log_level": 0,
             "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )  # fmt: skip
        messages: list[Any] = []
        try:
            partitions = wait_until(
                lambda: consumer.list_topics(topic, timeout=10).topics[topic].partitions, f"{topic} is there"
            )
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])

            def enough() -> bool:
                messages.extend(message for message in consumer.consume(1000, 0.2) if message.error() is None)
                return until(messages)

            wait_until(enough, f"{topic} has enough; it has {len(messages)}")
        finally:
            consumer.close()
        return messages


@contextlib.contextmanager
def kafka() -> Iterator[Kafka]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.brokers"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield Kafka(process, process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()


def _serve() -> None:
    """Brokers until stdin ends. A line is a function of librdkafka's and its arguments after the cluster."""
    folder = Path(confluent_kafka.__file__).parents[1]
    library = ctypes.CDLL(str(next(folder.glob("confluent_kafka.libs/librdkafka*"))))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    error = ctypes.create_string_buffer(512)
    client = ctypes.c_void_p(library.rd_kafka_new(0, ctypes.c_void_p(library.rd_kafka_conf_new()), error, 512))
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(client, 3))
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        function, *words = line.split()
        args = [int(word) if word.isdecimal() else word.encode() for word in words]
        print(getattr(library, function)(cluster, *args), flush=True)


if __name__ == "__main__":
    _serve()
