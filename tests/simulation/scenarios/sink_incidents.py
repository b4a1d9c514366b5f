"""Incidents of the exactly-once sink, drawn alone, so that a history justifies each failure and no other one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster.transactions import TransactionCoordinator, TransactionState
from tests.simulation.drawing import MAX_REPEATS
from tests.simulation.errors import ViolationError
from tests.simulation.history import Event
from tests.simulation.scenarios.sink_commits import SECONDS, STATE_TOPIC, TARGETS

from pyspark_kafka_direct.errors import OutcomeUnknownError

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.simulation.environment import Environment
    from tests.simulation.scenarios.sink_checks import LogLine
    from tests.simulation.scenarios.sink_stand_in import SinkQuery

# With which a leader rejects records that another transaction may write: the writer tries again.
_ABORTABLE: Final = (120, 45, 59, 48, -1)
_FENCED: Final = (47, 90)
# With which no other transaction writes them; the error that they become.
_FINAL: Final = {87: "InvalidRecordError", 29: "AuthorizationError"}
_ABORT_ERRORS: Final = (48, 53)  # with which a coordinator rejects EndTxn for good

# What is wrong until the user corrects it, and the error that each run has until then.
_CONFIGURATION_ERRORS: Final = {
    "policy": ("TransactionStateError", "cleanup.policy=delete"),
    "timeout": ("OptionError", "kafka.transaction.timeout.ms is"),
    "denied": ("AuthorizationError", "Grant the principal"),
    "rows": ("OptionError", STATE_TOPIC),
    "topic": ("TopicNotFoundError", "writing does not create topics"),
    "record": ("TransactionStateError", "The sink state record of the last batch cannot be read"),
    "file": ("CorruptRecordError", "taged record"),
    "messages": ("TransactionStateError", "tasks have reported staged rows"),
    "batch": ("TransactionStateError", "but its tasks belong to batch"),
}

_MOST_PAUSE: Final = 0.15  # of a request on its way

_INCIDENTS: Final = {
    "failed": 3,
    "slow": 2,
    "expanded": 1,
    "unknown": 1,
    "lost_state": 2,
    "misconfigured": 5,
    "none": 4,
}


def draw_incident(rng: random.Random, parameters: dict[str, Any]) -> tuple[tuple[Event, ...], float]:
    """Draw the events of one incident, and for how long they happen; change the parameters accordingly."""
    parameters |= {"queries": 1, "shares_prefix": False, "pauses": [], "extra_drivers": [], "speculated": []}
    incident = parameters["incident"] = rng.choices(list(_INCIDENTS), list(_INCIDENTS.values()))[0]
    first = parameters["batches"][0] or [0]
    parameters["batches"] = [first, *parameters["batches"][1:]]
    parameters["restart_seconds"] = 0.5
    # Otherwise a ticket may be sent again, and the faults would aim at other requests.
    parameters["cluster"]["metadata_lag"] = 0.0
    match incident:
        case "failed":
            return _draw_failed(rng, parameters), SECONDS
        case "slow":
            return _draw_slow(rng, parameters)
        case "expanded":
            return _draw_expanded(rng, parameters), 10.0
        case "unknown":
            if rng.random() < 0.4:
                parameters |= _draw_files(rng)
            return _draw_unknown(rng, parameters), 45.0
        case "lost_state":
            parameters |= {"lost_state": 1, "skipped": []}
            parameters |= {"batches": [first, [0], [0]], "batch_count": rng.choice((2, 3))}
            parameters["kinds"] = [rng.choice(("stream", "foreach"))]
        case "misconfigured":
            choices = ["policy", "timeout", "denied", "messages", "file"]
            choices += ["rows", "topic"] * parameters["names_topics"]
            choices += ["batch"] * (parameters["kinds"][0] == "stream")
            choices += ["record"] * (parameters["kinds"][0] in ("stream", "foreach"))
            parameters |= {"misconfigured": rng.choice(choices), "state_exists": True, "skipped": []}
            if parameters["misconfigured"] == "file" or rng.random() < 0.4:
                parameters |= _draw_files(rng)
    if (
        incident == "none" and rng.random() < 0.3
    ):  # the first batch creates the topic, which other brokers lack for a moment
        parameters["state_exists"] = False
        parameters["cluster"]["metadata_lag"] = 0.3
    if incident == "none" and rng.random() < 0.3:
        parameters["queries"] = 2
        if rng.random() < 0.5:  # jobs may share it with each other and with a query
            parameters |= {"shares_prefix": True, "kinds": [rng.choice(("stream", "foreach", "job")), "job"]}
    return (), 1.0


def _draw_files(rng: random.Random) -> dict[str, Any]:
    """Draw that each task stages its rows in a file, one after the other."""
    files = {"threshold": 0, "is_set": rng.random() < 0.5}
    return {"files": files, "parallelism": [2], "arrow_rows": 1, "row_seconds": 0.0, "batch_bytes": 120}


def _draw_expanded(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Draw that a topic gets a partition while a task has records of it that are not in a complete batch."""
    parameters |= {"batches": [[0] * 5, *parameters["batches"][1:]], "parallelism": [1], "batch_bytes": 524_288}
    parameters |= {"arrow_rows": 1, "row_seconds": 0.3, "metadata_max_age_ms": 200}
    return (Event("expand_topic", at=round(0.3 + rng.random(), 3), args={"topic": TARGETS[0], "count": 1}),)


def _draw_unknown(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Draw a commit that is applied without a response, after which the sink state cannot be read for a while.

    Or one that its coordinator rejects until the deadline, which is certain not to be applied.
    """
    parameters |= {"kinds": ["stream"], "request_timeout_ms": 2_000, "api_timeout_ms": 10_000, "busy_topic": []}
    parameters["is_certain"] = rng.random() < 0.3
    if parameters["is_certain"]:
        args = {"api": "EndTxn", "occurrence": 0, "repeats": MAX_REPEATS, "code": 51}
        return (Event("error", args=args),)
    lost = {"api": "EndTxn", "occurrence": 0, "repeats": 1}
    rejected = {"api": "EndTxn", "occurrence": 1, "repeats": MAX_REPEATS, "code": 51}
    # The first three read the sink state before and after the earlier writers are fenced.
    unread = {"api": "ListOffsets", "occurrence": 3, "repeats": MAX_REPEATS}
    return (
        Event("lose_response", args=lost),
        Event("error", args=rejected),
        Event("lose_request", args=unread),
    )


def _draw_failed(rng: random.Random, parameters: dict[str, Any]) -> tuple[Event, ...]:
    """Draw a transaction whose records a leader rejects, and which perhaps cannot be aborted."""
    code = rng.choice((*_ABORTABLE, *_FENCED, *_FINAL))
    parameters |= {"code": code, "cannot_abort": code not in _FENCED and rng.random() < 0.5}
    parameters |= {"transaction_timeout_ms": 60_000, "kinds": [rng.choice(("stream", "foreach", "job"))]}
    if rng.random() < 0.4:
        parameters |= {**_draw_files(rng), "batches": [[0, 1, 0], *parameters["batches"][1:]]}
    repeats = rng.choice((1, 1, 2)) if code in _ABORTABLE else 1
    # Request 0 is that of the ticket.
    events = [Event("error", args={"api": "Produce", "occurrence": 1, "repeats": repeats, "code": code})]
    if parameters["cannot_abort"]:
        rejected = {"api": "EndTxn", "occurrence": 0, "repeats": 1, "code": rng.choice(_ABORT_ERRORS)}
        events.append(Event("error", args=rejected))
    return tuple(events)


def _draw_slow(rng: random.Random, parameters: dict[str, Any]) -> tuple[tuple[Event, ...], float]:
    """Draw a transaction that lasts longer than half of its timeout, or than the timeout."""
    case = parameters["slow"] = rng.choice(("warned", "expired", "aborted"))
    parameters |= {
        "kinds": [rng.choice(("stream", "foreach", "job"))],
        "transaction_timeout_ms": 20_000,
        "request_timeout_ms": 30_000,
        "api_timeout_ms": 60_000,
        "delivery_timeout_ms": 120_000,
        "batches": [[0, 1, 0, 2, 1, 0], *parameters["batches"][1:]],
    }
    parameters["buffer_bytes"] = 1 << 25
    if case == "aborted":
        args = {"api": "EndTxn", "occurrence": 0, "repeats": MAX_REPEATS}
        return (Event("lose_request", args=args),), 45.0
    if case == "warned":
        parameters |= {"buffer_bytes": 150, "batch_bytes": 120}
    seconds = 12.0 if case == "warned" else 21.0
    args = {"api": "Produce", "occurrence": 1, "repeats": 1, "seconds": seconds}
    return (Event("delay_response", args=args),), SECONDS


def is_open(environment: Environment, transactional_id: str) -> bool:
    """Return whether a transaction is open, which nobody ends."""
    metadata = TransactionCoordinator.of(environment.cluster).transaction(transactional_id)
    return metadata is not None and metadata.state is TransactionState.ONGOING


def check_incident(environment: Environment, query: SinkQuery, lines: Sequence[LogLine]) -> None:
    """Check that an incident has the failures and warnings that it justifies, and no others."""
    parameters = environment.plan.parameters
    events = environment.plan.events
    expected: list[str] = []  # the classes of failures
    phrase = ""
    if query.open_after_failure and not any(event.args.get("api") == "EndTxn" for event in events):
        raise ViolationError(f"a failed transaction is not aborted: {query.failures}")
    match parameters["incident"]:
        case "failed" if events and any(event.args.get("api") == "Produce" for event in events):
            expected = [_FINAL[parameters["code"]]] if parameters["code"] in _FINAL else []
            if parameters["code"] in _ABORTABLE:
                _check_no_pause(environment, lines)
        case "slow" if events:
            # With transaction.version 2, the coordinator does not say that it has aborted a transaction: another one
            # writes the batch.
            is_reported = parameters["slow"] == "expired" or parameters["cluster"]["transaction_version"] < 2
            expected = ["BrokerTimeoutError"] if parameters["slow"] != "warned" and is_reported else []
            phrase = "Nothing was committed. Raise kafka.transaction.timeout.ms" if expected else ""
            old = [line for line in lines if "has been open for" in line.text]
            if parameters["slow"] == "warned" and len(old) != 1:
                raise ViolationError(f"a transaction that lasts for half of its timeout is warned of {len(old)} times")
            _check_sent_bytes(query)
        case "unknown" if len(events) == 3:
            first = query.failures[0] if query.failures else None
            if not isinstance(first, OutcomeUnknownError) or "may have been committed" not in str(first):
                raise ViolationError(f"nobody knows whether the batch is committed, but its error is {first!r}")
            return
        case "unknown" if events and parameters["is_certain"]:
            if not query.failures or isinstance(query.failures[0], OutcomeUnknownError):
                raise ViolationError(f"each try of the commit is rejected, but the failures are {query.failures}")
            return
        case "unknown":
            return
        case "lost_state" if len(query.batches) > 1:
            expected, phrase = ["TransactionStateError"] * 2, "set resetTransactionState to"
        case "misconfigured":
            error, phrase = _CONFIGURATION_ERRORS[parameters["misconfigured"]]
            expected = [error]
    found = [type(error).__name__ for error in query.failures]
    if found != expected or any(phrase not in str(error) for error in query.failures):
        raise ViolationError(f"the history justifies failures of {expected} ({phrase}), not {query.failures}")


def _check_no_pause(environment: Environment, lines: Sequence[LogLine]) -> None:
    """Check that a batch is written again at once after an error that does not concern the next transaction."""
    requests = [(facts[1], at) for at, kind, *facts in environment.world.trace_lines if kind == "request"]
    for line in lines:
        begun_at = line.at - environment.started_at
        if "trying again" in line.text:
            times = (at for process, at in requests if process == line.process and at > begun_at)
            later = min(times, default=begun_at)
            if later > begun_at + _MOST_PAUSE:
                raise ViolationError(f"{line.process} waits {later - begun_at:.3f} s before it writes a batch again")


def _check_sent_bytes(query: SinkQuery) -> None:
    for error in query.failures:
        text = str(error)
        if query.staged_bytes and f"has sent {query.staged_bytes[0]} bytes" not in text:
            raise ViolationError(f"the transaction has sent {query.staged_bytes[0]} bytes: {text}")
