"""A process that opens a shared log or a table, uses it from several threads, and checks what it promises."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.scenarios.shared_log_checks import (
    Sent,
    find_lost_keys,
    find_missing_keys,
)
from tests.simulation.scenarios.shared_log_quiet import check_calm_time, use_when_quiet
from tests.simulation.scenarios.shared_log_reports import CallbackError
from tests.simulation.scenarios.shared_log_sends import Send
from tests.simulation.scenarios.shared_log_session import QUIET_READ_SECONDS, LogSession
from tests.simulation.scenarios.shared_log_writers import KEY_PREFIX, Write

from pyspark_kafka_direct.errors import (
    BrokerTimeoutError,
    DataLossError,
    IllegalLogStateError,
    KafkaDirectError,
    TopicNotFoundError,
    TruncatedError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from tests.simulation.scenarios.shared_log_checks import VisibleEnds


_START_SLACK = 6.0  # seconds: the stop after a failed start, the request for its message, and the connects on the way
_STOP_SLACK = 1.0  # seconds for callbacks of what a stop fails
_DETECTION_SECONDS = 12.0  # a log notices truncations with its next fetches
_REQUEST_SECONDS = 31.0  # request.timeout.ms, and some time
_CALL_SECONDS = 61.0  # default.api.timeout.ms, and some time: a throttled request waits before its own timeout begins
_QUIET_STOP_SECONDS = 30.0
_QUIET_TRIES = 8
_PERMITTED = (DataLossError, TopicNotFoundError, BrokerTimeoutError)  # after the faults, for what began before
_IN_FLIGHT_SECONDS = 5.0  # a response may be as old
_THREAD_END_SECONDS = 0.01  # between the report that a thread ends and its end


class LogMember(LogSession):
    """One process with one log or table at a time."""

    def run(self) -> None:
        """Open the log, run all threads, and check the log after the faults have stopped."""
        self.process.sleep(self.values["at"])
        if not self._open():
            self.ended = True
            return
        steps = self.environment.plan.parameters["steps"]
        remaining = [self.process.spawn(f"thread {n}", partial(self._use, steps, n)) for n in self._thread_numbers()]
        if self.values["stop_at"] is not None:
            remaining.append(self.process.spawn("stopper", self._stop_early))
        while any(not task.greenlet.dead for task in remaining):
            self.process.sleep(0.1)
        self.process.sleep(max(0.0, self.environment.quiet_at - self.environment.world.now) + 0.1)
        while self._is_stopping:
            self.process.sleep(0.1)
        if self._is_stopped:
            self._check_ended()
            self._new_session()
            if not self._open():
                self.ended = True
                return
        if self._check_quiet() and self.values.get("used_when_quiet") and not self._may_be_rejected:
            use_when_quiet(self)
        self._stop(_QUIET_STOP_SECONDS)
        self.process.sleep(_THREAD_END_SECONDS)
        self._check_ended()
        self._check_threads()
        self.ended = True

    def _thread_numbers(self) -> range:
        return range(len(self.values["threads"]))

    # Opening and stopping.

    def _open(self) -> bool:
        """Open the log; after failures again, as long as there may be faults. Return whether it is open."""
        while True:
            quiet, started = self.environment.is_quiet, self.environment.world.now
            visible = self._truth.visible_ends()
            self._opened += 1
            self._build()
            try:
                with self.environment.world.operation():
                    self._start()
            except (KafkaDirectError, CallbackError) as error:
                self._check_time("start()", started, self._start_timeout(quiet=quiet) + _START_SLACK)
                is_rejected = self._may_be_rejected and isinstance(error, IllegalLogStateError)
                if isinstance(error, IllegalLogStateError) and not is_rejected:
                    raise
                if quiet and isinstance(error, TopicNotFoundError) and not self._truth.exists:
                    return False
                if self.is_calm and not self.has_open_transactions and not isinstance(error, CallbackError):
                    self.violations.append(f"start() fails without any fault: {error!r}")
                if quiet and not is_rejected and not isinstance(error, (CallbackError, DataLossError)):
                    self.violations.append(f"start() fails though no fault is left: {error!r}")
                    return False
                self._new_session()
                self.process.sleep(0.5)
                continue
            check_calm_time(self, "start()", started)
            self._check_complete(visible)
            # A broker that lagged may have reported the partitions of a topic that was recreated since.
            topic_id = self._log._worker.state.topic_id
            if topic_id is not None:
                generation = self.environment.cluster.generations_by_id.get(topic_id)
            else:
                generation = None if self._truth.was_recreated else self._truth.generation
            self._opened_with = (generation, self._log.partition_count)
            return True

    def _start(self) -> None:
        if self._table is None or not self._is_writer:
            self._opened_object.start()
            return
        self._claim = claim = self._writers.begin(self.name)
        try:
            self._table.start()
            claim.has_started = True
        finally:
            claim.start_ended_at = self.environment.world.now
        self._writers.check_start(claim, self._table.snapshot())

    def _stop_early(self) -> None:
        self.process.sleep(max(0.0, self.environment.started_at + self.values["stop_at"] - self.environment.world.now))
        self._is_stopped = True
        self._stop(self.values["stop_timeout"])

    def _stop(self, timeout: float) -> None:
        started = self.environment.world.now
        with self.environment.world.operation():
            self._opened_object.stop(timeout)
        self._check_time(f"stop({timeout:g})", started, timeout + _STOP_SLACK)
        self._stopped_at = self.environment.world.now
        for read in self._reads:
            if not read.done():
                self.violations.append("a read to the end is pending after stop()")

    # Steps.

    def _use(self, steps: int, number: int) -> None:
        task = self.environment.world.current
        for step in self.values["threads"][number][:steps]:
            self.process.sleep(step["pause"])
            started = self.environment.world.now
            task.stall = step.get("stall")
            try:
                with self.environment.world.operation():
                    getattr(self, f"_{step['kind']}")(step)
                if not self.has_open_transactions and step.get("stall") is None:
                    check_calm_time(self, step["kind"], started)
                self._check_time_of_contents()
            except IllegalLogStateError:
                if not self._is_stopped and not self._may_be_rejected:
                    raise
                return
            except KafkaDirectError as error:
                began_quiet = started > self.environment.quiet_at + _IN_FLIGHT_SECONDS
                # Without topic ids a recreated topic is one that was truncated, when its end is requested next.
                is_late_truncation = isinstance(error, TruncatedError) and not self._truth.detects_truncations
                if began_quiet and not is_late_truncation and not isinstance(error, _PERMITTED):
                    raise
            except RuntimeError:
                if not self._is_stopped:  # a send while the producer is closed
                    raise
                return
            finally:
                task.stall = None

    def _send(self, step: Mapping[str, Any]) -> None:
        if self._is_writer:
            self._write(step)
            return
        for number in range(step["records"]):
            self._sent_count += 1
            key = b"s%d" % (number % step["keys"])
            value = None if step["tombstones"] and number == 0 else b"%s-%d" % (self.name.encode(), self._sent_count)
            send = Send(self, Sent(key, value))
            self._writers.sends.append(send)
            if step["as_future"] or self._table is not None:
                assert value is None or self._table is None or key
                if self._table is not None:
                    future = self._table.delete(key) if value is None else self._table.put(key, value)
                else:
                    future = self._log.send_with_receipt(key, value)
                future.add_done_callback(send.on_future)
                self._sends.append(send)  # a thread that is preempted before this has not sent the record yet
            else:
                self._log.send(key, value, send.on_done)
                self._sends.append(send)

    def _write(self, step: Mapping[str, Any]) -> None:
        """Write as the single writer, unless an error has ended the claim."""
        assert self._table is not None
        self._sent_count += 1
        keys = [KEY_PREFIX + b"%d" % number for number in range(min(step["records"], step["keys"]))]
        values: dict[bytes, bytes | None] = {
            key: b"%s-%d-%s" % (self.name.encode(), self._sent_count, key) for key in keys
        }
        if step["tombstones"]:
            values[keys[0]] = None
        write = Write(values, self.environment.world.now)
        self._claim.writes.append(write)
        try:
            write.offsets = self._write_values(values)
        except IllegalLogStateError as error:
            write.error = error
            if all(each.offsets is not None for each in self._claim.writes if each is not write):
                raise
            return
        except KafkaDirectError as error:
            write.error = error
            return
        finally:
            write.ended_at = self.environment.world.now
        if self._log._worker.truncation_suspected and not self._truth.was_changed:
            self.violations.append(f"a write suspects a truncation that did not happen: {write.offsets}")
        if step["as_future"]:
            visible = self._truth.visible_ends()
            ends = {partition: offset + 1 for partition, offset in write.offsets.items()}
            self._table.wait_for(write.offsets, step["timeout"])
            self.view.violations += find_missing_keys(
                self._table.snapshot(), self.view, visible._replace(ends=ends), cause="wait_for returned early"
            )

    def _write_values(self, values: Mapping[bytes, bytes | None]) -> dict[int, int]:
        """Write in one transaction; return the last offset in each partition."""
        assert self._table is not None
        if len(values) > 1:
            puts = {key: value for key, value in values.items() if value is not None}
            offsets = self._table.write(puts, delete=values.keys() - puts.keys())
            return {each.partition: offset for each, offset in offsets.items()}
        ((key, value),) = values.items()
        future = self._table.delete(key) if value is None else self._table.put(key, value)
        metadata = future.result(0)
        send = Send(self, Sent(key, value))
        send.on_done(metadata, None)
        self._sends.append(send)
        return {metadata.partition: metadata.offset}

    def _read_to_end(self, step: Mapping[str, Any]) -> None:
        future = self._start_read(again=step["again"])
        with suppress(FutureTimeoutError, CallbackError):
            future.result(step["timeout"])

    def _wait_for(self, step: Mapping[str, Any]) -> None:
        sends = self._writers.sends if step.get("of_others") else self._sends
        done = [each for each in sends if each.metadata is not None]
        if not done:
            return
        by_offset = step.get("by_offset", False)
        # The offset of a record shows a truncation if the log had read behind it when the record was sent.
        send = next((each for each in reversed(done) if by_offset and each.shows_truncation), done[-1])
        metadata = send.metadata
        assert metadata is not None
        target = {metadata.partition: metadata.offset + 1} if by_offset else metadata
        visible, started = self._truth.visible_ends(), self.environment.world.now
        try:
            self._log.wait_for(target, step["timeout"])
        except ValueError:
            if not self._truth.was_recreated and self._truth.reads(metadata.partition):
                raise
            return  # the recreated topic has fewer partitions
        except CallbackError:
            return
        except BrokerTimeoutError:
            if self.environment.world.now > self._stopped_at + _STOP_SLACK:
                self.violations.append("wait_for() waits on although the log was stopped")
            raise
        finally:
            self._check_time("wait_for()", started, step["timeout"] + _STOP_SLACK)
        visible = visible._replace(ends={metadata.partition: metadata.offset + 1})
        if by_offset and not (send.shows_truncation and self._truth.detects_truncations):
            return
        now = self.environment.world.now
        written = [
            (entry.offset, entry.key, entry.value) for _, entry in self._truth.required(visible._replace(at=now))
        ]
        if (metadata.offset, *send.record) not in written:
            return  # the topic was recreated before the call, and has another record at this offset, or none
        # Without the id of its topic, a record of the recreated topic is one of the topic that the log reads.
        if self._table is not None and (metadata.topic_id is not None or not self._truth.was_recreated):
            self.view.violations += find_missing_keys(
                self._table.snapshot(), self.view, visible, cause="wait_for returned early"
            )
        # Without leader epochs, the record looks like one of a truncated log, which may even have been aborted.
        is_known = self._truth.detects_truncations or not self._truth.was_changed
        if self._table is None and is_known and not self._truth.was_recreated:
            for index, entry in self._truth.required(visible):
                delivered = self.view.delivered.get(index, {})
                was_delivered = entry.offset in delivered and delivered[entry.offset] == entry.value
                if entry.offset == metadata.offset and not was_delivered:
                    self.view.violations.append(
                        f"wait_for returned before offset {entry.offset} of partition {index} was delivered"
                    )

    def _flush(self, step: Mapping[str, Any]) -> None:
        sends, started = list(self._sends), self.environment.world.now
        try:
            self._log.flush(step["timeout"])
        finally:
            self._check_time("flush()", started, step["timeout"] + _STOP_SLACK)
        if any(not each.calls for each in sends):
            self.violations.append("flush() returned before a callback of send() was called")

    def _start_read(self, *, again: bool = False) -> Future[None]:
        visible = self._truth.visible_ends()
        sends = list(self._sends)
        calls: list[BaseException | None] = []

        def on_end(error: BaseException | None) -> None:
            calls.append(error)
            if len(calls) > 1:
                self.violations.append("a callback of read_to_end is called twice")
            if isinstance(error, TruncatedError) and self.view.is_reported(error, visible.at):
                self.violations.append(f"a read to the end fails for a truncation that was reported before: {error!r}")
            if error is None:
                self._check_complete(visible)
                self._check_current()
                as_of = self._opened_object.current_as_of
                if as_of is None or as_of < visible.at - self.environment.world.now + self.process.wall_time() - 0.001:
                    self.violations.append(f"the log was read to its end, and current_as_of is {as_of}")
                if any(not each.calls for each in sends):
                    self.violations.append("read_to_end completed before a callback of an earlier send()")
            if again and not self._is_stopped and not isinstance(error, IllegalLogStateError):
                self._reads.append(self._log.read_to_end())

        future = self._log.read_to_end(on_end)
        self._reads.append(future)
        return future

    # Checks.

    def _check_complete(self, visible: VisibleEnds) -> None:
        if self._table is not None:
            self.view.violations += find_missing_keys(self._table.snapshot(), self.view, visible)
        else:
            self.view.check_complete(visible)

    def _check_current(self) -> None:
        """Check that each record that was acknowledged before ``current_as_of`` was delivered."""
        as_of = self._opened_object.current_as_of
        if as_of is not None and self._truth.exists and not self._truth.may_have_lost_records:
            self._check_complete(self._truth.visible_ends_at(as_of - self.process.wall_time() + self._truth.now))

    def _check_time_of_contents(self) -> None:
        """Check that a log that was reset is not current as of an earlier time."""
        as_of = self._opened_object.current_as_of
        reset_at = self.view.reset_at - self.environment.world.now + self.process.wall_time()
        if self.view.resets and as_of is not None and as_of < reset_at - 0.001:
            self.violations.append(f"the log was reset, and current_as_of is {reset_at - as_of:.3f} s before that")

    def _check_quiet(self) -> bool:
        """Check that reads to the end succeed, and that the log then equals the topic; return whether they do."""
        visible = self._truth.visible_ends()
        if not self._read_when_quiet():
            return False
        until = self.environment.world.now
        if self._truth.may_have_lost_records:
            self.process.sleep(_DETECTION_SECONDS)
            visible = self._truth.visible_ends()
            if not self._read_when_quiet():
                return False
            until = self.environment.world.now + _REQUEST_SECONDS  # a fetch may wait for a response that was lost
        if all(read.done() for read in self._reads) and self._log._worker.pending_reads.has_pending:
            self.violations.append("a read is pending although all calls and futures are done")
        while (differences := self._differences(visible)) and self.environment.world.now < until:
            self.process.sleep(1.0)
        self.violations += differences
        return not differences

    def _differences(self, visible: VisibleEnds) -> list[str]:
        """Return how the log differs from the topic."""
        if self._table is None:
            return self.view.differences(visible)
        if self._table.snapshot() != self.view.reported:
            return [f"the changes of a table lead to {self.view.reported}, and it has {self._table.snapshot()}"]
        if not self._truth.detects_truncations and self._truth.was_recreated:
            return []
        values = self._table.snapshot()
        found = find_missing_keys(values, self.view, visible, cause="the table is wrong at the end")
        return found + (find_lost_keys(values, self.view) if self._truth.detects_truncations else [])

    def _read_when_quiet(self) -> bool:
        error: BaseException | None = None
        for _ in range(_QUIET_TRIES):
            future = self._start_read()
            try:
                future.result(QUIET_READ_SECONDS)
            except FutureTimeoutError:
                self.violations.append(
                    f"read_to_end takes more than {QUIET_READ_SECONDS:.0f} s though no fault is left: "
                    f"{self._log._worker.last_error!r}"
                )
                return False
            except TopicNotFoundError as raised:
                if not self._truth.exists:
                    return False
                error = raised
            except IllegalLogStateError as raised:
                # Without topic ids nothing but the next look for partitions shows that the topic was recreated.
                if self._is_rejected or (self._may_be_rejected and not self._truth.detects_truncations):
                    return False
                if not self._may_be_rejected:
                    raise
                error = raised
            except (KafkaDirectError, CallbackError) as raised:
                error = raised
            else:
                generation, count = self._opened_with
                if (
                    self._table is not None
                    and generation == self._truth.generation
                    and self._log.partition_count > count
                ):
                    self.violations.append("a table does not reject partitions that its topic has got")
                return True
            self.process.sleep(1.0)
        self.violations.append(f"read_to_end fails though no fault is left: {error!r}")
        return False

    def _check_ended(self) -> None:
        """Check what has to hold of a log that was stopped."""
        if not all(read.done() for read in self._reads):
            self.violations.append("a read to the end never completes, and the log was stopped")
        self.view.check_delivered()
        self._check_counts()
        for send in self._sends:
            if send.calls != 1:
                self.violations.append(f"a callback of send() is called {send.calls} times")
            send.check_outcome(self._truth)

    def _check_threads(self) -> None:
        """Check that no thread remains, but for requests in the background, which end with their timeout."""
        if self._threads():
            self.process.sleep(_CALL_SECONDS)
        if alive := self._threads():
            self.violations.append(f"threads remain after stop(): {alive}")

    def _threads(self) -> list[str]:
        world = self.environment.world
        return [
            task.name
            for task in world.tasks
            if task.process is self.process and not task.greenlet.dead and task is not world.current
        ]
