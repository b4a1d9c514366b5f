"""A program: one of the writers. It writes until its input ends, or it is killed; the ledger says what it has done.

python -m tests.soak.log.writer '{"servers": ..., "topic": ..., "number": 3, "kind": "log", "ledger": ...}'
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.soak.log.ledger import KEYS, Ledger, Place, deletes, is_aborted, key_of, lingers, number_of, value_of
from tests.soak.writer import quiet

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from pyspark_kafka_direct.log import KafkaTable
    from pyspark_kafka_direct.writing.outbox import Receipt

    Send = Callable[[bytes, bytes | None], Future[Receipt]]

_DEADLINE = 120.0
_AT_ONCE = 10  # records, at most
_PAUSE = (0.1, 0.6)  # seconds between them
_OPEN = 2.0  # seconds that a lingering transaction is open
_SIZE = 200  # bytes of padding, at most
_TRANSACTION_MS = 15_000


def main() -> None:
    """Write."""
    told = json.loads(sys.argv[1])
    ended = threading.Event()
    threading.Thread(target=_await_end, args=(ended,), daemon=True).start()
    ledger = Ledger(Path(told["ledger"]))
    if told["kind"] == "transactions":
        _Transactions(told, ledger, ended).run()
        return
    from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable

    params = {"bootstrap.servers": told["servers"]}
    if told["kind"] == "log":
        with KafkaBasedLog(told["topic"], params, on_record=lambda _: None) as log:
            _Writer(told["number"], ledger, log.send_with_receipt, ended).run()
    else:
        with KafkaTable(told["topic"], params) as table:
            _Writer(told["number"], ledger, table.log.send_with_receipt, ended, table).run()


class _Writer:
    """Sends bursts of records, and notes what is acknowledged.

    Args:
        number: Of the writer.
        ledger: Its ledger.
        send: Sends a record.
        ended: Set when it is to end.
        table: Must have what was acknowledged once it has been waited for.
    """

    def __init__(
        self, number: int, ledger: Ledger, send: Send, ended: threading.Event, table: KafkaTable | None = None
    ) -> None:
        self._number, self._ledger, self._send, self._ended, self._table = number, ledger, send, ended, table
        self._draw = random.Random()

    def run(self) -> None:
        newest = list(self._ledger.sent)
        while not self._ended.wait(self._draw.uniform(*_PAUSE)):
            sent: list[tuple[int, Future[Receipt]]] = []
            for _ in range(self._draw.randint(1, _AT_ONCE)):
                key = self._draw.randrange(KEYS)
                newest[key] += 1
                sent.append((key, self._write(key, newest[key])))
            if self._table is not None:
                self._read_back(self._table, *sent[-1], newest)
            for _, each in sent:
                each.result(_DEADLINE)

    def _write(self, key: int, number: int) -> Future[Receipt]:
        def acknowledged(receipt: Future[Receipt]) -> None:
            if receipt.exception() is None:
                self._ledger.acknowledge(key, number)

        self._ledger.send(key, number)
        receipt = self._send(key_of(Place(self._number, key)), value_of(number, self._draw.randrange(_SIZE)))
        receipt.add_done_callback(acknowledged)
        return receipt

    def _read_back(self, table: KafkaTable, key: int, receipt: Future[Receipt], newest: list[int]) -> None:
        """A table has what its receipt stands for as soon as that was waited for."""
        table.wait_for(receipt.result(_DEADLINE), _DEADLINE)
        value = table.get(key_of(Place(self._number, key)))
        if value is None:
            assert deletes(newest[key]), f"key {key} is missing, {newest[key]} was waited for"
        else:
            assert number_of(value) == newest[key], f"key {key} is {value!r}, {newest[key]} was waited for"


class _Transactions:
    """Writes transactions with librdkafka: committed ones, aborted ones, some of them open for long."""

    def __init__(self, told: dict[str, Any], ledger: Ledger, ended: threading.Event) -> None:
        self._told, self._ledger, self._ended = told, ledger, ended
        self._draw = random.Random()
        self._deadline = time.monotonic() + _DEADLINE
        self._producer = self._connect()

    def run(self) -> None:
        from confluent_kafka import KafkaException

        transaction = max(self._ledger.sent)
        while not self._ended.wait(self._draw.uniform(*_PAUSE)):
            transaction += 1
            self._deadline = time.monotonic() + _DEADLINE
            keys = self._draw.sample(range(KEYS), self._draw.randint(1, _AT_ONCE))
            try:
                self._write(transaction, keys)
            except KafkaException as problem:
                self._give_up(problem)
                continue
            if not is_aborted(transaction):
                for key in keys:
                    self._ledger.acknowledge(key, transaction)

    def _write(self, transaction: int, keys: list[int]) -> None:
        self._producer.begin_transaction()
        for key in keys:
            self._ledger.send(key, transaction)
            place = Place(self._told["number"], key)
            value = value_of(transaction, self._draw.randrange(_SIZE))
            self._producer.produce(self._told["topic"], value, key_of(place))
        self._producer.flush(_DEADLINE)
        if lingers(transaction):
            self._ended.wait(_OPEN)
        self._again(self._producer.abort_transaction if is_aborted(transaction) else self._producer.commit_transaction)

    def _give_up(self, problem: Any) -> None:
        """Abort, with another producer if this one is of no use any more."""
        from confluent_kafka import KafkaException

        if not problem.args[0].fatal():
            try:
                self._again(self._producer.abort_transaction)
                return
            except KafkaException:
                pass
        self._producer = self._connect()

    def _connect(self) -> Any:
        from confluent_kafka import Producer

        settings = {
            "bootstrap.servers": self._told["servers"],
            "transactional.id": f"{self._told['topic']}-{self._told['number']}",
            "transaction.timeout.ms": _TRANSACTION_MS,
            "reconnect.backoff.max.ms": 500,
            "partitioner": "murmur2_random",  # as Java and we do it
        }
        producer = Producer(settings, logger=quiet())
        self._again(producer.init_transactions)
        return producer

    def _again(self, act: Callable[[float], None]) -> None:
        """Try until it works, or cannot work."""
        from confluent_kafka import KafkaException

        while True:
            try:
                act(30.0)
                return
            except KafkaException as problem:
                if not problem.args[0].retriable() or time.monotonic() > self._deadline:
                    raise


def _await_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    main()
