"""Reading options: which of them were given, for what, and their values, checked against the table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark_kafka_direct._option_table import BY_NAME, TABLE, Use
from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.planning.hints import did_you_mean, is_misspelt

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPARKS_OWN = frozenset({"path", "paths", "checkpointlocation"})
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?", re.ASCII)
_DURATION = re.compile(r"([0-9]{1,15})(us|ms|s|m|min|h|d)?", re.ASCII)
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class Given:
    """The options of the table that were given, with the table's defaults for the others.

    Every method raises ``OptionError`` for a text that cannot be used, with the option's name, the text and what is
    allowed.

    Args:
        texts: Texts by lower-case name.
        use: What they are for.
    """

    def __init__(self, texts: Mapping[str, str], use: Use) -> None:
        self._texts = texts
        self._use = use

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return name.lower() in self._texts

    def text(self, name: str) -> str:
        """Its text, or its default."""
        option = BY_NAME[name.lower()]
        default = option.stream_default if self._use == "stream" and option.stream_default else option.default
        return self._texts.get(name.lower(), default)

    def flag(self, name: str) -> bool:
        """True or false, in any letter case."""
        text = self.text(name)
        if text.lower() not in ("true", "false"):
            raise OptionError(f"{name} must be true or false, got {text!r}{did_you_mean(text, ['true', 'false'])}")
        return text.lower() == "true"

    def number(self, name: str) -> int:
        """A whole number within the limits of the table."""
        option, text = BY_NAME[name.lower()], self.text(name)
        if not _WHOLE.fullmatch(text) or not option.least <= int(text) <= option.most:
            raise OptionError(f"{name} must be a whole number from {option.least} to {option.most}, got {text!r}")
        return int(text)

    def optional_number(self, name: str) -> int | None:
        """The same; ``None`` where the option was not given."""
        return self.number(name) if self.has(name) else None

    def decimal(self, name: str) -> float:
        """A number that is not negative."""
        if not _DECIMAL.fullmatch(self.text(name)):
            raise OptionError(f"{name} must be a number from 0 such as 0.2, got {self.text(name)!r}")
        return float(self.text(name))

    def duration(self, name: str) -> float:
        """Seconds, from a whole number and a unit as Spark writes them (``JavaUtils.timeStringAs``).

        A number alone is milliseconds.
        """
        found = _DURATION.fullmatch(self.text(name).strip().lower())
        if found is None:
            raise OptionError(f"{name} must be a duration such as 500ms, 30s or 15m, got {self.text(name)!r}")
        return int(found[1]) * _UNITS[found[2] or "ms"]

    def matching(self, name: str, form: re.Pattern[str], wanted: str) -> str | None:
        """A text of a certain form, described by ``wanted``; ``None`` where the option was not given."""
        if not self.has(name):
            return None
        if not form.fullmatch(self.text(name)):
            raise OptionError(f"{name} must be {wanted}, got {self.text(name)!r}")
        return self.text(name)


def lower_case(raw: Mapping[str, str]) -> dict[str, str]:
    """The options by lower-case name.

    Raises:
        OptionError: A name occurs twice, in different letter cases and with different values.
    """
    texts: dict[str, str] = {}
    for name, text in raw.items():
        if text is None:  # what Spark makes of option(name, None)
            continue
        if texts.setdefault(name.lower(), text) != text:
            raise OptionError(f"the option {name} is given twice with different values; names are case-insensitive")
    return texts


def sort_options(texts: Mapping[str, str], use: Use) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Tell client settings from our own options.

    Returns:
        Client settings, our options, and warnings about options that have no effect.

    Raises:
        OptionError: An option that is refused here or misspelt, or a client setting given twice with different values.
    """
    kafka: dict[str, str] = {}
    own: dict[str, str] = {}
    warnings: list[str] = []
    ours = [option.name for option in TABLE if not option.name.startswith("kafka.")]
    with_effect = [option.name for option in TABLE if option.uses and not option.name.startswith("kafka.")]
    our_groups = {name.lower().split(".")[0] for name in ours if "." in name}
    for name, text in texts.items():
        option = BY_NAME.get(name)
        if option is not None and not name.startswith("kafka."):
            if use in option.uses:
                own[name] = text
            elif option.refused:
                raise OptionError(f"the option {option.name} cannot be used here: {option.ignored}")
            else:
                warnings.append(f"the option {option.name} is ignored: {option.ignored}")
        elif not name.startswith("kafka.") and is_misspelt(name, with_effect):
            # A stream that ignores startingOffset=earliest reads nothing of what is there, and few would see a warning.
            raise OptionError(f"the option {name} is unknown{did_you_mean(name, with_effect)}")
        elif name.startswith("kafka.") or ("." in name and name.split(".")[0] not in our_groups):
            # Names with a dot are client settings, with or without their prefix, but for two groups of Spark's.
            setting = name.removeprefix("kafka.")
            if kafka.setdefault(setting, text) != text:
                raise OptionError(f"kafka.{setting} and {setting} are given with different values; give one of them")
        elif name not in _SPARKS_OWN:
            warnings.append(f"the option {name} is unknown and ignored{did_you_mean(name, ours)}")
    return kafka, own, warnings
