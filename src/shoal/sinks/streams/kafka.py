"""Kafka: one message per record, keyed by the record's key, confirmed by all in-sync replicas.

The producer is idempotent: a message that librdkafka repeats is stored once. A batch that this sink repeats may be
stored twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import msgspec

from shoal.model.record import Record
from shoal.sinks.columns import Row
from shoal.sinks.driver import lazy_import
from shoal.sinks.reader import Cursor, ReadRequest
from shoal.sinks.retry import QUIET_SECONDS
from shoal.sinks.streams.stream import StreamMessage, StreamSink, StreamTechnology, message_of

if TYPE_CHECKING:
    import confluent_kafka

    from shoal.brokers import kafka
else:
    confluent_kafka, kafka = lazy_import("confluent_kafka"), lazy_import("shoal.brokers.kafka")

_MAX_MESSAGE_BYTES = 1_000_000
# The bytes that librdkafka and Kafka add to key and value.
_ENVELOPE_BYTES = 1000


class KafkaSink(StreamSink["kafka.PolledProducer"]):
    async def connect(self) -> kafka.PolledProducer:
        settings = {
            "acks": "all", "enable.idempotence": True, "compression.type": "lz4", "linger.ms": 5,
            "message.max.bytes": _MAX_MESSAGE_BYTES, "queue.buffering.max.kbytes": 65536,
            **kafka.configuration(self.address),
        }  # fmt: skip
        producer = kafka.PolledProducer(settings)
        try:
            await producer.run(lambda: producer.check_topic(self.address.name))
        except BaseException:
            producer.close()
            raise
        return producer

    async def _send(self, connection: kafka.PolledProducer, messages: list[StreamMessage]) -> None:
        pairs = [(message.key, message.body) for message in messages]
        await connection.run(lambda: connection.send(self.address.name, pairs))

    def _message(self, record: Row) -> StreamMessage:
        """Brokers reject long messages: the text of a long page is cut, and `text_cut` is set."""
        message = message_of(record)
        room = int(self.address.options.get("message.max.bytes", _MAX_MESSAGE_BYTES)) - _ENVELOPE_BYTES
        while isinstance(record, Record) and record.text and len(message.body) + len(message.key) > room:
            share = room / (len(message.body) + len(message.key))
            record = msgspec.structs.replace(record, text=record.text[: int(len(record.text) * share * 0.9)])
            message = message_of(record)
            message = message._replace(body=message.body[:-1] + b',"text_cut":true}')
        return message

    async def _disconnect(self, connection: kafka.PolledProducer) -> None:
        connection.close()

    def abandon(self, connection: kafka.PolledProducer) -> None:
        connection.close()

    def _explained(self, error: Exception, *, connected: bool) -> Exception:
        if not isinstance(error, confluent_kafka.KafkaException):
            return super()._explained(error, connected=connected)
        quiet_seconds = QUIET_SECONDS if error.args[0].code() == confluent_kafka.KafkaError._FATAL else 0.0
        return self._failed(kafka.fault_of(error.args[0]), quiet_seconds=quiet_seconds)


class KafkaTechnology(StreamTechnology):
    schemes = ("kafka",)
    driver = "confluent_kafka"
    extra = "kafka"
    sink_class = KafkaSink

    def read(self, address: str, request: ReadRequest) -> AsyncGenerator[list[tuple[Cursor, Row]], None]:
        from shoal.sinks.streams.reader import read, topic_bodies

        sink = KafkaSink(address, on_trouble=lambda sentence: None)
        return read(sink, topic_bodies(sink))


TECHNOLOGY = KafkaTechnology()
