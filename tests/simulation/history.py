"""Histories as plain data: what a seed has drawn, and what remains of it after shrinking.

Everything in a history is None, a bool, a number, a string, a tuple of these or a mapping from strings to these, so
that it survives JSON unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

Size = Literal["short", "long"]
Codec = Literal["tables", "kio"]


@dataclass(frozen=True, slots=True)
class Event:
    """A fault or a change of the cluster.

    Attributes:
        kind: What happens.
        at: When it happens, in simulated seconds since the start of the history; None for a request's fault.
        request: The number of the request in the history, from 0; None for an event at a time.
        args: What else the scenario needs.
    """

    kind: str
    at: float | None = None
    request: int | None = None
    args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", plain(self.args))

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "at": self.at, "request": self.request, "args": dict(self.args)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        return cls(values["kind"], values["at"], values["request"], values["args"])


@dataclass(frozen=True, slots=True)
class Plan:
    """What a scenario has drawn.

    Attributes:
        scenario: The scenario's name.
        parameters: Its parameters.
        events: The faults and changes; a scenario must accept any subset of them.
        quiet_after: When faults stop, in simulated seconds since the start of the history.
    """

    scenario: str
    parameters: Mapping[str, Any]
    events: tuple[Event, ...] = ()
    quiet_after: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", plain(self.parameters))

    def with_events(self, events: tuple[Event, ...]) -> Self:
        return replace(self, events=events)

    def with_parameter(self, name: str, value: Any) -> Self:
        return replace(self, parameters={**self.parameters, name: value})

    def to_json(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "parameters": dict(self.parameters),
            "events": [event.to_json() for event in self.events],
            "quiet_after": self.quiet_after,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        events = tuple(map(Event.from_json, values["events"]))
        return cls(values["scenario"], values["parameters"], events, values["quiet_after"])


@dataclass(frozen=True, slots=True)
class History:
    """A plan, and what else determines a run: the seed of the schedule and the codec of the brokers."""

    seed: int
    size: Size
    codec: Codec
    plan: Plan

    @property
    def scenario(self) -> str:
        return self.plan.scenario

    def with_plan(self, plan: Plan) -> Self:
        return replace(self, plan=plan)

    def to_json(self) -> dict[str, Any]:
        return {"seed": self.seed, "size": self.size, "codec": self.codec, "plan": self.plan.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        return cls(values["seed"], values["size"], values["codec"], Plan.from_json(values["plan"]))

    def dumps(self) -> str:
        return json.dumps(self.to_json(), indent=1) + "\n"

    @classmethod
    def loads(cls, text: str) -> Self:
        return cls.from_json(json.loads(text))


def plain(value: Any) -> Any:
    """Return a value with tuples instead of lists; raise TypeError for what JSON would not keep."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"a history's mappings have strings as keys, not {key!r}")
        return {key: plain(each) for key, each in value.items()}
    raise TypeError(f"a history is plain data, and {value!r} is not")
