"""What a row of the table of settings looks like: doors, roles, origins, and what happens elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

Door: TypeAlias = Literal["batch", "stream", "continuous", "direct", "rdd", "sink", "log"]
"""What settings are read for. A new door is a word here, and in the groups of doors below where it belongs to one."""

Role: TypeAlias = Literal["connect", "fetch", "produce", "group", "plan"]
"""The typed value that a setting fills, or would fill at a door that is not there yet."""

DOORS: Final[tuple[Door, ...]] = get_args(Door)
CONNECTING: Final = DOORS
READING: Final[tuple[Door, ...]] = ("batch", "stream", "continuous", "direct", "rdd")
SOURCE: Final[tuple[Door, ...]] = ("batch", "stream", "continuous")  # their options are those of the data source
RANGES: Final[tuple[Door, ...]] = ("batch", "stream")  # each task reads one offset range
CONTINUOUS: Final[tuple[Door, ...]] = ("continuous",)
PARAMETERS: Final[tuple[Door, ...]] = ("direct", "rdd")
WRITING: Final[tuple[Door, ...]] = ("sink",)
LOG: Final[tuple[Door, ...]] = ("log",)  # it reads and writes
FETCHING: Final[tuple[Door, ...]] = (*READING, *LOG)
PRODUCING: Final[tuple[Door, ...]] = (*WRITING, *LOG)

INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1


class Kind(Enum):
    """What a value looks like, in the words of messages and documentation."""

    TEXT = "text"
    FLAG = "true or false"
    NUMBER = "whole number"
    DECIMAL = "number"
    WORD = "word"
    DURATION = "duration"
    LIST = "list"
    # What follows has a grammar of its own: it stays a text here, and planning/ reads it.
    JSON = "JSON"
    TIMESTAMP = "milliseconds since 1970"


class Origin(Enum):
    """Where settings are written; the text is what one of them is called in messages."""

    OPTION = "the option"
    PARAMETER = "the parameter"
    SPARK = "the Spark setting"
    ENVIRONMENT = "the environment variable"
    JAAS = "the login module's option"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What happens to a setting at a door where it does not work.

    Attributes:
        why: The reason, or what to write instead.
        refuse: Whether it is an error; else it is ignored with a warning.
        harmless: Values that ask for what is done anyway, and so bring neither error nor warning; ``*`` at the front
            of one stands for any text. Upper and lower case are the same.
        cures: Values for which there is a better answer than ``why``: how one begins, and the answer.
    """

    why: str
    refuse: bool = False
    harmless: tuple[str, ...] = ()
    cures: tuple[tuple[str, str], ...] = ()

    def is_harmless(self, text: str) -> bool:
        """Tell whether a text asks for what is done anyway."""
        word = text.strip().lower()
        return any(
            word.endswith(each[1:].lower()) if each.startswith("*") else word == each.lower() for each in self.harmless
        )

    def why_not(self, text: str) -> str:
        """Return the reason why this value cannot be honoured, or what to write instead."""
        return next((cure for begin, cure in self.cures if text.strip().startswith(begin)), self.why)


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a text.

    Attributes:
        pattern: What the whole text, or each entry of a list, has to match.
        words: The same in words, after "must be".
    """

    pattern: re.Pattern[str]
    words: str


@dataclass(frozen=True, slots=True)
class Written:
    """How a setting is written at one origin.

    Attributes:
        origin: Where.
        name: Its name there, if that is not the row's.
        unit: Of a duration that is a number alone.
    """

    origin: Origin
    name: str = ""
    unit: str = "ms"


BY_NAME: Final = (Written(Origin.OPTION), Written(Origin.PARAMETER))
"""How most settings are written: under their own names, as an option or in ``kafkaParams``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting.

    Attributes:
        name: Its name; of a client setting without ``kafka.``, Java's where Java has it.
        role: The typed value that it fills.
        doors: The doors where it works, each with its default there, as text; ``None``: no default.
        about: What it does, in one line.
        kind: What its value looks like.
        field: The field of the typed value that it alone fills; empty where a rule makes the field of several settings.
        client: Whether it is a setting of Kafka clients: among options it begins with ``kafka.``, and an empty text
            means "not given" unless it has a default.
        aliases: Other names of the same setting (librdkafka's).
        low: Smallest number allowed, of a duration as it is written.
        high: Largest number allowed.
        allowed: Words allowed, in their canonical spelling; upper and lower case are the same.
        form: The form of the text.
        secret: Whether its value must never be shown.
        verbatim: Whether blanks around its value count. Java trims every value, and so does everything else here.
        required: Whether it must be given where it works.
        spark: Whether Spark's own source, or its sink, has an option of this name.
        elsewhere: What happens at the other doors; ``*`` stands for all that are not named.
        origins: Where and how it is written; the first one that is given counts.
    """

    name: str
    role: Role
    doors: Mapping[Door, str | None]
    about: str = ""
    kind: Kind = Kind.TEXT
    field: str = ""
    client: bool = False
    aliases: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    allowed: tuple[str, ...] = ()
    form: Form | None = None
    secret: bool = False
    verbatim: bool = False
    required: bool = False
    spark: bool = False
    elsewhere: Mapping[Door | Literal["*"], Fate]
    origins: tuple[Written, ...] = BY_NAME

    def fate(self, door: Door) -> Fate:
        """Return what happens at a door where it does not work."""
        return self.elsewhere[door] if door in self.elsewhere else self.elsewhere["*"]

    def written(self, origin: Origin) -> Written | None:
        """Return how it is written at an origin first of all; ``None`` where it cannot be written there."""
        return next((each for each in self.origins if each.origin is origin), None)


def at(doors: tuple[Door, ...], default: str | None = None) -> dict[Door, str | None]:
    """Return the same default at some doors."""
    return dict.fromkeys(doors, default)
