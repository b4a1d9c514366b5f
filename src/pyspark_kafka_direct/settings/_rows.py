"""Short ways to write rows that are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pyspark_kafka_direct.settings.row import (
    BY_NAME,
    CONNECTING,
    FETCHING,
    INT32,
    INT64,
    LOG,
    PARAMETERS,
    PRODUCING,
    READING,
    WRITING,
    Fate,
    Kind,
    Setting,
    at,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.settings.row import Door, Role, Written

FOR_READING: Final = Fate(why="it is a setting for reading")
FOR_WRITING: Final = Fate(why="it is a setting for writing and changes nothing in a read")
NOT_OF_A_LOG: Final = Fate(why="it is an option of the data source and changes nothing in a log")

_NOWHERE: Final[dict[Door, str | None]] = {}


def ignored(
    role: Role, why: str, *names: str, harmless: tuple[str, ...] = (), log: str = "", continuous: str = ""
) -> tuple[Setting, ...]:
    """Return client settings that have no effect at any door, and why; also where the reason is another one."""
    fate = Fate(why=why, harmless=harmless)
    fates: dict[Door | Literal["*"], Fate] = {"*": fate}
    if role in ("fetch", "group"):
        others: dict[Door, str] = {"log": log, "continuous": continuous}
        fates = {**dict.fromkeys(READING, fate), "*": FOR_READING}
        fates.update({door: Fate(why=words or why, harmless=harmless) for door, words in others.items()})
    return tuple(Setting(name=name, role=role, doors=_NOWHERE, client=True, elsewhere=fates) for name in names)


def refused(
    role: Role,
    name: str,
    why: str,
    *aliases: str,
    harmless: tuple[str, ...] = (),
    cures: tuple[tuple[str, str], ...] = (),
    log: str = "",
) -> Setting:
    """Return a client setting that cannot be honoured at any door, with what to write instead; of a log by itself."""
    fate = Fate(why=why, refuse=True, harmless=harmless, cures=cures)
    of_log = Fate(why=log or why, refuse=True, harmless=harmless, cures=cures)
    return Setting(
        name=name, role=role, doors=_NOWHERE, client=True, aliases=aliases, elsewhere={"log": of_log, "*": fate}
    )


def as_parameter(fate: Fate) -> dict[Door | Literal["*"], Fate]:
    """Return what happens to an option of the data source in ``kafkaParams``, a log, and at doors that do not read."""
    return {**dict.fromkeys(PARAMETERS, fate), "log": NOT_OF_A_LOG, "*": FOR_READING}


def connecting(
    name: str,
    about: str,
    *aliases: str,
    default: str | None = None,
    kind: Kind = Kind.TEXT,
    field: str = "",
    low: int | None = None,
    high: int | None = None,
    allowed: tuple[str, ...] = (),
    secret: bool = False,
    verbatim: bool = False,
    origins: tuple[Written, ...] = BY_NAME,
) -> Setting:
    """Return a client setting of whatever connects to brokers."""
    return Setting(
        name=name,
        role="connect",
        doors=at(CONNECTING, default),
        about=about,
        kind=kind,
        field=field,
        client=True,
        aliases=aliases,
        low=low,
        high=high,
        allowed=allowed,
        secret=secret,
        verbatim=verbatim,
        elsewhere={},
        origins=origins,
    )


def milliseconds(name: str, default: int, about: str, *aliases: str, field: str, low: int = 0) -> Setting:
    """Return a client setting of whatever connects to brokers: a time that fits Java's long."""
    return connecting(name, about, *aliases, default=str(default), kind=Kind.NUMBER, field=field, low=low, high=INT64)


def fetching(
    name: str,
    default: int | str,
    about: str,
    *aliases: str,
    field: str,
    kind: Kind = Kind.NUMBER,
    allowed: tuple[str, ...] = (),
    elsewhere: Mapping[Door | Literal["*"], Fate] | None = None,
) -> Setting:
    """Return a client setting of whatever fetches records, but for some doors where something else happens."""
    numeric = kind is Kind.NUMBER
    others = elsewhere or {}
    return Setting(
        name=name,
        role="fetch",
        doors=at(tuple(door for door in FETCHING if door not in others), str(default)),
        about=about,
        kind=kind,
        field=field,
        client=True,
        aliases=aliases,
        low=0 if numeric else None,
        high=INT32 if numeric else None,
        allowed=allowed,
        elsewhere={**others, "*": FOR_READING},
    )


def producing(
    name: str,
    default: int | str | None,
    about: str,
    *aliases: str,
    field: str = "",
    kind: Kind = Kind.NUMBER,
    low: int = 1,
    high: int = INT32,
    allowed: tuple[str, ...] = (),
    log: Fate | None = None,
) -> Setting:
    """Return a client setting of whatever writes records; a log's fate where it does not work in one."""
    numeric = kind is Kind.NUMBER
    return Setting(
        name=name,
        role="produce",
        doors=at(WRITING if log else PRODUCING, None if default is None else str(default)),
        about=about,
        kind=kind,
        field=field,
        client=True,
        aliases=aliases,
        low=low if numeric else None,
        high=high if numeric else None,
        allowed=allowed,
        elsewhere={**({"log": log} if log else {}), "*": FOR_WRITING},
    )


def not_producing(
    why: str, *names: str, refuse: bool = False, harmless: tuple[str, ...] = (), log: str = ""
) -> tuple[Setting, ...]:
    """Return client settings of writing that no writer here has, and why; in a read they are ignored as the others.

    Args:
        why: The reason.
        names: The settings.
        refuse: Whether they are refused.
        harmless: Values that do no harm.
        log: The reason in a log, where it is another one.
    """
    fates: dict[Door | Literal["*"], Fate] = {
        **dict.fromkeys(WRITING, Fate(why=why, refuse=refuse, harmless=harmless)),
        **dict.fromkeys(LOG, Fate(why=log or why, refuse=refuse, harmless=harmless)),
        "*": FOR_WRITING,
    }
    return tuple(Setting(name=name, role="produce", doors=_NOWHERE, client=True, elsewhere=fates) for name in names)
