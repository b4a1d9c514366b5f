"""What a row of the table of client settings looks like, and how its value is read from text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.settings.secret import MASK, Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

Value = str | int | bool | Secret | tuple[str, ...]


class Kind(Enum):
    """How a setting's text is read, after Java's ``ConfigDef.Type``."""

    TEXT = auto()
    SECRET = auto()
    INT = auto()
    FLAG = auto()
    LIST = auto()


class Use(Enum):
    """What becomes of a setting."""

    APPLIED = "applied"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Setting:
    """One client setting.

    Attributes:
        name: Its name, without ``kafka.``; Java's where Java has it.
        use: Applied, ignored with one warning, or refused.
        about: Applied: what it does, one line. Ignored: why it means nothing here. Refused: what to write instead.
        kind: How its text is read.
        default: Value where it is not given; ``None`` means none.
        low: Smallest number allowed.
        high: Largest number allowed.
        allowed: Words allowed, in their canonical spelling; compared without regard to case.
        aliases: Other names of the same setting (librdkafka's).
        harmless: Texts that ask for what is done anyway, and so bring neither warning nor refusal; compared without
            regard to case.
        verbatim: Keep leading and trailing blanks. Java's client trims every value, and so does everything else here.
    """

    name: str
    use: Use
    about: str
    kind: Kind = Kind.TEXT
    default: Value | None = None
    low: int | None = None
    high: int | None = None
    allowed: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()
    verbatim: bool = False

    def is_harmless(self, text: str) -> bool:
        """Whether a text asks for what is done anyway."""
        return text.strip().lower() in (word.lower() for word in self.harmless)

    @property
    def secret(self) -> bool:
        """Whether its value must never be shown."""
        return self.kind is Kind.SECRET


def ignored(reason: str, *names: str) -> tuple[Setting, ...]:
    """Rows for settings that have no effect here, and why."""
    return tuple(Setting(name, Use.IGNORED, reason) for name in names)


def refused(name: str, instead: str, *aliases: str, harmless: tuple[str, ...] = ()) -> Setting:
    """The row of a setting that can't be honoured, with what to write instead."""
    return Setting(name, Use.REFUSED, instead, aliases=aliases, harmless=harmless)


def read_value(setting: Setting, text: str, written_as: str) -> Value:
    """Read a setting's value from its text.

    Args:
        setting: The row of the table.
        text: What was given.
        written_as: The name it was given under, for the message.

    Raises:
        OptionError: The text is no such value; names the option, what was given and what is allowed.
    """
    if not setting.verbatim:
        text = text.strip()
    match setting.kind:
        case Kind.SECRET:
            return Secret(text)
        case Kind.FLAG:
            return _read_flag(setting, text, written_as)
        case Kind.INT:
            return _read_number(setting, text, written_as)
        case Kind.LIST:
            return tuple(part for part in (part.strip() for part in text.split(",")) if part)
        case Kind.TEXT:
            return _read_word(setting, text, written_as) if setting.allowed else text


def bad_value(setting: Setting, text: str, written_as: str, wanted: str) -> OptionError:
    """Build the error for a value that can't be used; a secret one is masked."""
    shown = MASK if setting.secret else repr(text)
    return OptionError(f"option kafka.{written_as}: {shown} is not allowed; write {wanted}")


def default_values(table: Mapping[str, Setting]) -> dict[str, Value]:
    """Defaults of all applied settings that have one."""
    return {
        name: setting.default
        for name, setting in table.items()
        if setting.use is Use.APPLIED and setting.default is not None
    }


def _read_flag(setting: Setting, text: str, written_as: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise bad_value(setting, text, written_as, "true or false")


def _read_number(setting: Setting, text: str, written_as: str) -> int:
    low = -(2**63) if setting.low is None else setting.low
    high = 2**63 - 1 if setting.high is None else setting.high
    # int() alone would also take "1_000" and digits of other scripts.
    if re.fullmatch(r"[+-]?[0-9]{1,19}", text) is None or not low <= int(text) <= high:
        raise bad_value(setting, text, written_as, f"a whole number from {low} to {high}")
    return int(text)


def _read_word(setting: Setting, text: str, written_as: str) -> str:
    for word in setting.allowed:
        if word.lower() == text.lower():
            return word
    raise bad_value(setting, text, written_as, " or ".join(setting.allowed))
