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
    from collections.abc import Collection, Iterable, Mapping

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
            if not setting.is_harmless(text):
                raise OptionError(f"option kafka.{original} is not supported: {setting.about}")
        elif setting.use is Use.IGNORED:
            if not setting.is_harmless(text):
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


_PAGE: Final = """\
# Client settings

Made by `python -m pyspark_kafka_direct.wire.settings > docs/client-settings.md`; a test checks that it is current.

Every setting of Kafka 4.3's Java consumer, and librdkafka's names for them. Write them as options, with `kafka.` or
without: `.option("kafka.fetch.min.bytes", "65536")`. Upper and lower case are the same. A setting that is ignored or
unknown brings one warning; one that is refused, or a value that cannot be used, is an error before any task starts.
An empty text means "not given". How to log in and encrypt: [security.md](security.md).
"""

_SECTIONS: Final = (
    (Use.APPLIED, "Applied", "| setting | default | meaning | also as |", "|---|---|---|---|"),
    (Use.REFUSED, "Refused", "| setting | what to write instead | accepted all the same |", "|---|---|---|"),
    (Use.IGNORED, "Ignored", "| setting | why |", "|---|---|"),
)


def settings_markdown() -> str:
    """Render docs/client-settings.md."""
    lines = [_PAGE]
    for use, title, head, rule in _SECTIONS:
        lines += [f"## {title}", "", head, rule]
        lines += [_row(setting) for _, setting in sorted(SETTINGS.items()) if setting.use is use]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name.strip().lower().replace("_", "."), _BY_ANY_NAME, n=1, cutoff=0.8)
    hint = f"; did you mean kafka.{close[0]}?" if close else ""
    return f"option kafka.{name} is unknown and ignored{hint}"


def _row(setting: Setting) -> str:
    cells = [f"`{setting.name}`"]
    match setting.use:
        case Use.APPLIED:
            cells += [_shown_default(setting), setting.about, _listed(setting.aliases)]
        case Use.REFUSED:
            cells += [setting.about, _listed(word for word in setting.harmless if not word.startswith("kafkashaded."))]
        case Use.IGNORED:
            cells.append(setting.about)
    return f"| {' | '.join(cells)} |"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _shown_default(setting: Setting) -> str:
    if setting.default in (None, ""):
        return ""
    if setting.kind is Kind.LIST and isinstance(setting.default, tuple):
        return f"`{','.join(setting.default)}`"
    if isinstance(setting.default, bool):
        return f"`{str(setting.default).lower()}`"
    return f"`{setting.default}`"
