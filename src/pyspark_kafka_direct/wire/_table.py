"""The one table of client settings: looking a name up, collecting what was given, hinting at typos."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.wire._setting import Kind, Setting, Use, Value, default_values, read_value
from pyspark_kafka_direct.wire._table_network import NETWORK_SETTINGS
from pyspark_kafka_direct.wire._table_security import SECURITY_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

SETTINGS: Final[Mapping[str, Setting]] = {setting.name: setting for setting in (*NETWORK_SETTINGS, *SECURITY_SETTINGS)}
_BY_ANY_NAME: Final[Mapping[str, Setting]] = {
    **SETTINGS,
    **{alias: setting for setting in SETTINGS.values() for alias in setting.aliases},
}


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What came out of the given settings.

    Attributes:
        values: Values of the applied settings by their table name, defaults included.
        given: Table name to the name it was given under, for the applied settings that were given.
        notes: One line for each setting that is ignored or unknown; never holds a value.
    """

    values: Mapping[str, Value]
    given: Mapping[str, str]
    notes: tuple[str, ...]


def read_settings(params: Mapping[str, str], *, handled: Collection[str] = ()) -> ReadSettings:
    """Read client settings against the table.

    Args:
        params: Settings by name, without ``kafka.``; upper and lower case are the same, librdkafka's names are known.
        handled: Names the caller deals with itself (in lower case): passed over here.

    Raises:
        OptionError: A setting is refused, its value can't be used, or it is given twice with different values.
    """
    values = default_values(SETTINGS)
    texts: dict[str, str] = {}
    given: dict[str, str] = {}
    notes = []
    for original, text in params.items():
        name = original.strip().lower()
        if name in handled:
            continue
        setting = _BY_ANY_NAME.get(name)
        if setting is None:
            notes.append(_unknown(original))
        elif setting.use is Use.REFUSED:
            if text.strip().lower() not in setting.harmless:
                raise OptionError(f"option kafka.{original} is not supported: {setting.about}")
        elif setting.use is Use.IGNORED:
            if text.strip().lower() not in setting.harmless:
                notes.append(f"option kafka.{original} is ignored: {setting.about}")
        elif text.strip() or setting.default is not None:  # an empty text means "not given", as in a filled-in template
            earlier = given.get(setting.name)
            if earlier is not None and texts[setting.name] != text:
                raise OptionError(
                    f"options kafka.{earlier} and kafka.{original} are the same setting with different values; "
                    "give one of them"
                )
            texts[setting.name] = text
            given[setting.name] = original
            values[setting.name] = read_value(setting, text, original)
    return ReadSettings(values, given, tuple(notes))


def settings_markdown() -> str:
    """Render the table for the documentation: name, what is done with it, default, other names."""
    lines = [
        "| setting | use | default | meaning, reason, or what to write instead | also as |",
        "|---|---|---|---|---|",
    ]
    for name, setting in sorted(SETTINGS.items()):
        aliases = ", ".join(f"`{alias}`" for alias in setting.aliases)
        lines.append(f"| `{name}` | {setting.use.value} | {_shown_default(setting)} | {setting.about} | {aliases} |")
    return "\n".join(lines) + "\n"


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name.strip().lower().replace("_", "."), _BY_ANY_NAME, n=1, cutoff=0.8)
    hint = f"; did you mean kafka.{close[0]}?" if close else ""
    return f"option kafka.{name} is unknown and ignored{hint}"


def _shown_default(setting: Setting) -> str:
    if setting.use is not Use.APPLIED or setting.default in (None, ""):
        return ""
    if setting.kind is Kind.LIST and isinstance(setting.default, tuple):
        return f"`{','.join(setting.default)}`"
    if isinstance(setting.default, bool):
        return f"`{str(setting.default).lower()}`"
    return f"`{setting.default}`"
