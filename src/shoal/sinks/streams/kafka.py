"""Kafka: a message a record, keyed by the record's key, confirmed by all in-sync replicas.

The producer is idempotent: a message that librdkafka repeats is stored once. A batch that this sink repeats may be
stored twice.
"""

from __future__ import annotations

import msgspec
from confluent_kafka import KafkaError, KafkaException

from shoal.brokers.kafka import PolledProducer, configuration, fault_of
from shoal.model.record import Record
from shoal.sinks.columns import Row
from shoal.sinks.retry import QUIET_SECONDS
from shoal.sinks.streams.stream import StreamMessage, StreamSink, message_of

_MAX_MESSAGE_BYTES = 1_000_000
# What librdkafka and Kafka add to key and value.
_ENVELOPE_BYTES = 1000


class KafkaSink(StreamSink[PolledProducer]):
    async def _connect(self) -> PolledProducer:
        settings = {
            "acks": "all", "enable.idempotence": True, "compression.type": "lz4", "linger.ms": 5,
            "message.max.bytes": _MAX_MESSAGE_BYTES, "queue.buffering.max.kbytes": 65536,
            **configuration(self._address),
        }  # fmt: skip
        producer = PolledProducer(settings)
        try:
            await producer.run(lambda: producer.check_topic(self._address.name))
        except BaseException:
            producer.close()
            raise
        return producer

    async def _send(self, connection: PolledProducer, messages: list[StreamMessage]) -> None:
        pairs = [(message.key, message.body) for message in messages]
        await connection.run(lambda: connection.send(self._address.name, pairs))

    def _message(self, record: Row) -> StreamMessage:
        """Brokers refuse messages above a length: the text of a page that long is cut, and `text_cut` says so."""
        message = message_of(record)
        room = int(self._address.options.get("message.max.bytes", _MAX_MESSAGE_BYTES)) - _ENVELOPE_BYTES
        while isinstance(record, Record) and record.text and len(message.body) + len(message.key) > room:
            share = room / (len(message.body) + len(message.key))
            record = msgspec.structs.replace(record, text=record.text[: int(len(record.text) * share * 0.9)])
            message = message_of(record)
            message = message._replace(body=message.body[:-1] + b',"text_cut":true}')
        return message

    async def _disconnect(self, connection: PolledProducer) -> None:
        connection.close()

    def _abandon(self, connection: PolledProducer) -> None:
        connection.close()

    def _meaning(self, error: Exception, *, connected: bool) -> Exception:
        if not isinstance(error, KafkaException):
            return super()._meaning(error, connected=connected)
        quiet_seconds = QUIET_SECONDS if error.args[0].code() == KafkaError._FATAL else 0.0
        return self._failed(fault_of(error.args[0]), quiet_seconds=quiet_seconds)
