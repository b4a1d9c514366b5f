"""A program: one writer. It writes until its input ends or it is killed, and stores what it has sent.

python -m tests.soak.log.writer '{"servers": ..., "topic": ..., "number": 3, "kind": "log", "sent_records": ...}'
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.soak.log.sent_records import (
    KEYS,
    KeyId,
    SentRecords,
    deletes,
    format_key,
    format_value,
    is_aborted,
    lingers,
    parse_number,
)
from tests.soak.writer import quiet

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from pyspark_kafka_direct.log import KafkaTable
    from pyspark_kafka_direct.producer.async_producer import RecordMetadata

    Send = Callable[[bytes, bytes | None], Future[RecordMetadata]]

_DEADLINE = 120.0
_MAX_BURST = 10  # records
_PAUSE = (0.1, 0.6)  # seconds between bursts
_LINGER_SECONDS = 2.0
_MAX_PADDING = 200  # bytes
_TRANSACTION_MS = 15_000


def main() -> None:
    arguments = json.loads(sys.argv[1])
    ended = threading.Event()
    threading.Thread(target=_await_end, args=(ended,), daemon=True).start()
    sent_records = SentRecords(Path(arguments["sent_records"]))
    if arguments["kind"] == "transactions":
        _Transactions(arguments, sent_records, ended).run()
        return
    from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable

    params = {"bootstrap.servers": arguments["servers"]}
    if arguments["kind"] == "log":
        with KafkaBasedLog(arguments["topic"], params, on_record=lambda _: None) as log:
            _Writer(arguments["number"], sent_records, log.send_with_receipt, ended).run()
    else:
        with KafkaTable(arguments["topic"], params) as table:
            _Writer(arguments["number"], sent_records, table.log.send_with_receipt, ended, table).run()


class _Writer:
    """Sends bursts of records, and stores the acknowledged ones."""

    def __init__(
        self,
        number: int,
        sent_records: SentRecords,
        send: Send,
        ended: threading.Event,
        table: KafkaTable[bytes, bytes] | None = None,
    ) -> None:
        self._number, self._sent_records, self._send, self._ended, self._table = (
            number,
            sent_records,
            send,
            ended,
            table,
        )
        self._draw = random.Random()

    def run(self) -> None:
        newest = list(self._sent_records.sent)
        while not self._ended.wait(self._draw.uniform(*_PAUSE)):
            sent: list[tuple[int, Future[RecordMetadata]]] = []
            for _ in range(self._draw.randint(1, _MAX_BURST)):
                key = self._draw.randrange(KEYS)
                newest[key] += 1
                sent.append((key, self._write(key, newest[key])))
            if self._table is not None:
                self._read_back(self._table, *sent[-1], newest)
            for _, each in sent:
                each.result(_DEADLINE)

    def _write(self, key: int, number: int) -> Future[RecordMetadata]:
        def acknowledged(metadata: Future[RecordMetadata]) -> None:
            if metadata.exception() is None:
                self._sent_records.acknowledge(key, number)

        self._sent_records.send(key, number)
        metadata = self._send(
            format_key(KeyId(self._number, key)), format_value(number, self._draw.randrange(_MAX_PADDING))
        )
        metadata.add_done_callback(acknowledged)
        return metadata

    def _read_back(
        self, table: KafkaTable[bytes, bytes], key: int, metadata: Future[RecordMetadata], newest: list[int]
    ) -> None:
        """A table must have a record as soon as it has waited for its metadata."""
        table.wait_for(metadata.result(_DEADLINE), _DEADLINE)
        value = table.get(format_key(KeyId(self._number, key)))
        if value is None:
            assert deletes(newest[key]), f"key {key} is missing, {newest[key]} was expected"
        else:
            assert parse_number(value) == newest[key], f"key {key} is {value!r}, {newest[key]} was expected"


class _Transactions:
    """Writes transactions with librdkafka: committed, aborted and long ones."""

    def __init__(self, arguments: dict[str, Any], sent_records: SentRecords, ended: threading.Event) -> None:
        self._arguments, self._sent_records, self._ended = arguments, sent_records, ended
        self._draw = random.Random()
        self._deadline = time.monotonic() + _DEADLINE
        self._producer = self._connect()

    def run(self) -> None:
        from confluent_kafka import KafkaException

        transaction = max(self._sent_records.sent)
        while not self._ended.wait(self._draw.uniform(*_PAUSE)):
            transaction += 1
            self._deadline = time.monotonic() + _DEADLINE
            keys = self._draw.sample(range(KEYS), self._draw.randint(1, _MAX_BURST))
            try:
                self._write(transaction, keys)
            except KafkaException as error:
                self._abort(error)
                continue
            if not is_aborted(transaction):
                for key in keys:
                    self._sent_records.acknowledge(key, transaction)

    def _write(self, transaction: int, keys: list[int]) -> None:
        self._producer.begin_transaction()
        for key in keys:
            self._sent_records.send(key, transaction)
            key_id = KeyId(self._arguments["number"], key)
            value = format_value(transaction, self._draw.randrange(_MAX_PADDING))
            self._producer.produce(self._arguments["topic"], value, format_key(key_id))
        self._producer.flush(_DEADLINE)
        if lingers(transaction):
            self._ended.wait(_LINGER_SECONDS)
        self._retry(self._producer.abort_transaction if is_aborted(transaction) else self._producer.commit_transaction)

    def _abort(self, error: Any) -> None:
        """Abort, and create another producer if the error is fatal."""
        from confluent_kafka import KafkaException

        if not error.args[0].fatal():
            try:
                self._retry(self._producer.abort_transaction)
                return
            except KafkaException:
                pass
        self._producer = self._connect()

    def _connect(self) -> Any:
        from confluent_kafka import Producer

        settings = {
            "bootstrap.servers": self._arguments["servers"],
            "transactional.id": f"{self._arguments['topic']}-{self._arguments['number']}",
            "transaction.timeout.ms": _TRANSACTION_MS,
            "reconnect.backoff.max.ms": 500,
            "partitioner": "murmur2_random",  # as Java's client and this package
        }
        producer = Producer(settings, logger=quiet())
        self._retry(producer.init_transactions)
        return producer

    def _retry(self, action: Callable[[float], None]) -> None:
        """Retry retriable errors."""
        from confluent_kafka import KafkaException

        while True:
            try:
                action(30.0)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > self._deadline:
                    raise


def _await_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    main()
