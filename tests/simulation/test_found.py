"""Histories that have found defects, all of which are fixed; each was shrunk while the defect was there.

They are stored as plans, because a seed draws another history whenever its scenario draws something else.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.history import History
from tests.simulation.runner import run_history

_PLANS = Path(__file__).parent / "plans"


@pytest.mark.parametrize(
    "name",
    [
        # The backoff before a reconnect left no time to connect, and each such connect prolonged it.
        "backoff-without-time-to-connect",
        # One broker did not know the topic of a batch that ran again, so the tasks had no topic id.
        "batch-that-runs-again-without-topic-id",
        # With concurrent jobs, the ranges of batches were forgotten that were done while an earlier batch still ran.
        # The checkpoint of that batch was the last one, so a restart generated the others again.
        "batches-done-before-an-earlier-one",
        # A connection was in use when another one timed out, and was reused as the broker had responded to a third.
        "connection-held-over-a-timeout",
        # A driver listed the offset log, another one committed an epoch, and the commit log did not match.
        "continuous-commit-while-the-logs-are-read",
        # A driver listed the offset log and was suspended until another one had purged the epoch that it read then.
        "continuous-epochs-purged-while-read",
        # With exactly-once, a topic that left the subscription and returned was read from its start again.
        "continuous-topic-that-returns",
        # A record behind failed ones was sent again in the next epoch while its first request was still on its way.
        "copy-of-a-record-behind-a-failed-one",
        # A topic was recreated with fewer partitions. Each batch for a missing partition waited until it was found
        # missing, and a read waited for all of them.
        "batches-of-a-missing-partition",
        # A record had failed, but its future waited for the metadata of another topic, which no broker returned.
        "failed-record-behind-another-topic",
        # A direct stream found a partition in a batch that no checkpoint has, and committed its records. When the batch
        # was generated again, it lacked them.
        "direct-stream-partition-without-checkpoint",
        # Two threads requested a batch. One could not plan it, so its generation failed. The other one planned it
        # in the next generation, whose batch began behind the records.
        "direct-stream-plan-that-outlives-its-generation",
        # Metadata lacked a topic, and it was recreated while that was confirmed. Its partitions were reported as
        # deleted, and at the next batch as recreated.
        "missing-topic-that-is-recreated-while-confirmed",
        # Partitions that a recreated topic lacks were reported as recreated, then as deleted.
        "recreated-topic-with-fewer-partitions",
        # A driver found no partitions, and hung. When they existed, it fenced its successor before it had cores itself.
        "driver-that-fences-before-it-has-cores",
        # Without topic ids a task named a new leader's epoch to the planned leader, which returned lost records.
        "epoch-with-another-leader",
        # Without topic ids the higher leader epoch of a deleted topic hid the leader of the recreated one, forever.
        "epoch-of-a-deleted-topic",
        # Steps that block gave records delivery.timeout.ms again: requests for metadata and producer ids, connections,
        # and several batches.
        "late-record-behind-metadata",
        # A request for the metadata of another topic delayed the response to records in flight by as much again.
        "late-record-in-flight-behind-metadata",
        # Failures of records were reported after later batches had been tried, each with a connection that blocks.
        "late-record-behind-other-batches",
        "late-record-behind-producer-ids",
        "late-record-while-connects-stall",
        # New records of topics without metadata failed, each after a second, and the producer was not polled meanwhile.
        "late-record-while-new-records-fail",
        # A record expired between the check of deadlines and the wait, which ended only with the broker's throttling.
        "late-record-that-expires-before-a-wait",
        # Records that were queued for a broker expired only when its quota let the producer send again.
        "late-record-while-throttled",
        # Below transaction.version 2, a try of EndTxn without a response ended the next transaction of the same epoch.
        "late-end-txn-in-the-next-transaction-1",
        "late-end-txn-in-the-next-transaction-2",
        # Below transaction.version 2, a try of TxnOffsetCommit without a response replaced the offsets of the next
        # transaction.
        "late-offset-commit-in-the-next-transaction",
        # A request of a record that was reported as failed was written behind a newer record: a new producer id fences
        # nothing.
        "late-request-of-a-failed-record",
        "late-requests-of-records-that-were-sent-again",
        # Without leader epochs a log was read again only from its new end. Records below it had been replaced, or their
        # transaction ended otherwise.
        "log-committed-records-behind-a-truncation",
        # Without topic ids a log waited forever for the partitions that a recreated topic lacks.
        "log-recreated-with-fewer-partitions-1",
        "log-recreated-with-fewer-partitions-2",
        # The broker of a new leader responded late, and a task believed the leader that had been deposed.
        "leader-that-responds-late-as-a-witness",
        # A log kept the records of an epoch when a log came back that has those of an earlier epoch at their offsets.
        "log-truncated-to-an-earlier-log",
        # A log kept records that others had replaced, because those had expired before the log noticed the truncation.
        "log-truncated-to-its-start",
        # The metadata of a broker that lagged behind lacked a partition that the log read already, and stayed cached.
        "log-whose-metadata-lacks-an-added-partition",
        # A log was idle. Then wait_for was explained at once by a transaction that had just begun.
        "log-wait-behind-a-transaction-that-has-just-begun",
        # A direct stream did not report the records of a new partition that were removed before it found the partition.
        "new-partition-without-its-first-records",
        # The only broker that knew an added partition was throttled and responded late. The others lagged behind, and
        # the partition was reported as deleted.
        "partition-that-only-a-slow-broker-knows",
        # A pattern's only topic could not be described, and the start failed because its stored offsets "are not read".
        "pattern-whose-topic-may-not-be-described",
        # A consumer that resumed with the leader epoch of an earlier one went back, and assigned it to earlier records.
        "reader-that-resumes-and-goes-back",
        # A consumer skipped records that it had not read, went back, and compared the epoch of what it had read before.
        "reader-that-skips-and-goes-back",
        # Errors of two partitions of a recreated topic waited. After the first one, a seek of the other partition read
        # the new topic, which its caller did not know, and its error was lost.
        "recreated-topic-behind-a-seek",
        # A bootstrap server required a rebootstrap, and was called again instead of the others.
        "rebootstrap-at-the-first-server",
        # A batch whose response was lost was rejected as too large, and split. Its first half failed, because the batch
        # had been written. Then its second half was written again in the next epoch.
        "record-of-a-batch-split-after-a-lost-response",
        # A recreated topic accepted records behind one that was sent again. Then all were sent in the next epoch.
        "records-written-to-a-recreated-topic-before-an-earlier-one",
        # The connections of a single writer stayed open if its table was stopped while a write took longer.
        "table-stopped-while-it-writes",
        # A topic has the times of appends. One was the latest timestamp of its batch, and the records were reported
        # with the timestamps that they had before.
        "timestamp-of-the-millisecond-of-the-append",
        # A broker of another cluster used the address of the only one for a while. Its metadata lacked the topic, which
        # was reported as deleted.
        "topic-that-another-cluster-lacks-1",
        "topic-that-another-cluster-lacks-2",
        # A table claimed its transactional id for default.api.timeout.ms after its start timeout.
        "table-that-claims-after-its-start-timeout",
        # wait_for began before a log had read anything. It returned for another record at the offset, of an earlier
        # epoch.
        "wait-for-a-record-behind-a-truncation",
        # It returned although the newer log, which has the record, only ended where the earlier one was read to.
        "wait-for-a-record-of-a-log-with-the-same-end",
    ],
)
def test_the_history_passes(name: str) -> None:
    outcome = run_history(History.loads((_PLANS / f"{name}.json").read_text("utf-8")))
    assert outcome.failure is None, outcome.failure.traceback


def test_all_stored_histories_are_run() -> None:
    mark = test_the_history_passes.pytestmark[0]  # type: ignore[attr-defined]
    assert {path.stem for path in _PLANS.iterdir()} == set(mark.args[1])
