"""Client settings of writing. No door writes yet, so they have no effect."""

from __future__ import annotations

from typing import Final

from pyspark_kafka_direct.settings._rows import ignored

PRODUCE_ROWS: Final = (
    *ignored(
        "produce",
        "it is a setting for writing and changes nothing in a read",
        "acks",
        "request.required.acks",
        "batch.size",
        "batch.num.messages",
        "buffer.memory",
        "compression.type",
        "compression.codec",
        "compression.level",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "delivery.timeout.ms",
        "enable.idempotence",
        "enable.gapless.guarantee",
        "key.serializer",
        "value.serializer",
        "linger.ms",
        "queue.buffering.max.ms",
        "queue.buffering.max.messages",
        "queue.buffering.max.kbytes",
        "message.max.bytes",
        "message.send.max.retries",
        "message.timeout.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "metadata.max.idle.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "retries",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
        "transaction.two.phase.commit.enable",
        "transactional.id",
    ),
)
