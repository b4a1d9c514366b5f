"""Tables whose transactional id expires at a real broker."""

from __future__ import annotations

import pytest
from tests.integration.log.log_helpers import Recorder, params, wait_result
from tests.integration.waiting import wait_until

from pyspark_kafka_direct.broker import EmbeddedKafka
from pyspark_kafka_direct.errors import ProducerFencedError
from pyspark_kafka_direct.log import KafkaBasedLog, KafkaTable

_PROPERTIES = {
    "transactional.id.expiration.ms": "2000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "1",
}


@pytest.mark.soak
def test_an_idle_table_writes_again_unless_another_one_has_claimed_its_id() -> None:
    states = Recorder()
    with (
        EmbeddedKafka(properties=_PROPERTIES) as kafka,
        KafkaTable("t", params(kafka.bootstrap_servers), transactional_id="w", create={}) as table,
        KafkaBasedLog("__transaction_state", params(kafka.bootstrap_servers), on_record=states) as log,
    ):

        def wait_for_expiry() -> None:
            wait_result(log.read_to_end())
            wait_until(lambda: states.values()[-1] is None)  # the coordinator deletes the state by a tombstone

        for number in range(2):
            wait_for_expiry()
            table.wait_for(table.write({b"a": b"%d" % number}))
            assert table.snapshot() == {b"a": b"%d" % number}
        wait_for_expiry()
        with KafkaTable("t", params(kafka.bootstrap_servers), transactional_id="w") as successor:
            with pytest.raises(ProducerFencedError, match="another table has claimed"):
                table.put(b"a", b"zombie")
            successor.wait_for(wait_result(successor.put(b"a", b"2")))
            assert successor.snapshot() == {b"a": b"2"}
