"""A fake of the library ``gssapi``, which is not installed where the headers of Kerberos are missing.

It has no cryptography: a wrapped message begins with ``signed:``. ``make test-kerberos`` runs the real one.
"""

from __future__ import annotations

from enum import Flag, StrEnum
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

NO_TICKET_CACHE = -1765328189
KDC_UNREACHABLE = -1765328228


class GSSError(Exception):
    """An error with a code of Kerberos, which the library returns as an unsigned number."""

    maj_code = 0

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code)
        self.min_code = code % 2**32
        self._reason = reason

    def get_all_statuses(self, code: int, is_major: bool) -> list[str]:
        return [self._reason] if code or is_major else ["Success"]


class ExpiredCredentialsError(GSSError):
    """The tickets have expired."""


class NameType(StrEnum):
    hostbased_service = "hostbased"
    kerberos_principal = "principal"


class RequirementFlag(Flag):
    mutual_authentication = 2
    integrity = 32


class Name:
    """A principal; ``canonical`` has the results of name servers, and ``realms`` is ``[domain_realm]``."""

    canonical: ClassVar[dict[str, str]] = {}
    realms: ClassVar[dict[str, str]] = {}

    def __init__(self, name: str, name_type: NameType) -> None:
        self._name = name
        self._type = name_type

    def canonicalize(self, mechanism: str) -> Name:
        service, _, host = self._name.partition("@")
        host = self.canonical.get(host, host.lower())
        realm = next((realm for domain, realm in self.realms.items() if host.endswith(domain)), "")
        return Name(f"{service}/{host}@{realm}", NameType.kerberos_principal)

    def __str__(self) -> str:
        return self._name if "@" in self._name else f"{self._name}@REALM"


class SecurityContext:
    """The client's side; the broker's token must be ``proof``."""

    def __init__(self, *, name: Name, creds: Any, usage: str, mech: str, flags: RequirementFlag) -> None:
        assert (usage, mech) == ("initiate", "kerberos")
        assert flags == RequirementFlag.mutual_authentication | RequirementFlag.integrity
        assert not creds.in_use, "MIT Kerberos locks it while it waits for the KDC"
        creds.in_use = True
        self._ticket = f"{creds.name} for {name}"
        self.complete = False

    def step(self, token: bytes | None = None) -> bytes | None:
        if token is None:
            return self._ticket.encode()
        if token == b"more":
            return b"more"
        if token != b"proof":
            raise GSSError(-1765328353, "Decrypt integrity check failed")
        self.complete = True
        return None

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"signed:" + message)

    def unwrap(self, message: bytes) -> Any:
        if not message.startswith(b"signed:"):
            raise GSSError(0, "A token was invalid")
        return SimpleNamespace(message=message.removeprefix(b"signed:"))


class FakeKdc:
    """Logs in; ``before_login`` may raise an error, and ``logins`` has the store of each login."""

    def __init__(self, lifetime: int | None = 100) -> None:
        self.lifetime = lifetime  # in seconds; None: without end
        self.logins: list[dict[str, str] | None] = []
        self.before_login: Callable[[], object] = lambda: None
        self._caches: set[str] = set()  # in memory, with tickets

    def module(self) -> ModuleType:
        """Return the module ``gssapi``."""
        module = ModuleType("gssapi")
        module.exceptions = SimpleNamespace(  # type: ignore[attr-defined]
            GSSError=GSSError, ExpiredCredentialsError=ExpiredCredentialsError
        )
        members = (Name, NameType, RequirementFlag, SecurityContext)
        for member in members:
            setattr(module, member.__name__, member)
        module.MechType = SimpleNamespace(kerberos="kerberos")  # type: ignore[attr-defined]
        module.Credentials = self._credentials  # type: ignore[attr-defined]
        return module

    def _credentials(self, *, name: Name | None, usage: str, mechs: list[str], store: dict[str, str] | None) -> Any:
        if usage == "accept":
            raise GSSError(0, f"No key table entry found for {name}")
        options = store or {}
        cache = options.get("ccache", "")
        if "client_keytab" in options or cache not in self._caches:
            self.logins.append(store)
            self.before_login()
        if cache.startswith("MEMORY:"):
            self._caches.add(cache)
        name = name or Name("cached", NameType.kerberos_principal)
        return SimpleNamespace(name=name, lifetime=self.lifetime, in_use=False)
