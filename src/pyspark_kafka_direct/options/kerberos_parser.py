"""Parser of Kerberos settings: the options of ``Krb5LoginModule``, and librdkafka's settings.

    com.sun.security.auth.module.Krb5LoginModule     useKeyTab=true keyTab=PATH principal=NAME useTicketCache=true
                                                     ticketCache=PATH serviceName=NAME
    com.ibm.security.auth.module.Krb5LoginModule     useKeytab=URL principal=NAME useCcache=URL useDefaultCcache=true
                                                     credsType=initiator|both serviceName=NAME

The names are case-sensitive, and a boolean is true only if its value is ``true``. As in Java, the ticket cache takes
precedence over the keytab. Other options of the modules have no effect, because they are about the Java process
(``storeKey``, ``refreshKrb5Config``, ``debug``) or about asking for a password (``doNotPrompt``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark_kafka_direct.errors import OptionError
from pyspark_kafka_direct.options.jaas import jaas_value
from pyspark_kafka_direct.options.option_parser import file_url_path
from pyspark_kafka_direct.options.security_settings import KerberosSettings
from pyspark_kafka_direct.options.value_types import invalid_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_kafka_direct.options.jaas import LoginModule
    from pyspark_kafka_direct.options.option_parser import ParsedConfig

KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
IBM_KERBEROS_MODULE: Final = "com.ibm.security.auth.module.Krb5LoginModule"

_SERVICE: Final = "sasl.kerberos.service.name"
_PRINCIPAL: Final = "sasl.kerberos.principal"
_KEYTAB: Final = "sasl.kerberos.keytab"
_SERVICE_NAME: Final = re.compile(r"[\w.\-]+")


def parse_kerberos(parsed: ParsedConfig, module: LoginModule | None, warnings: list[str]) -> KerberosSettings:
    """Return the settings of a login with a keytab, a ticket cache, or both."""
    config = parsed.name_of("sasl.jaas.config")
    if module is None:
        options: Mapping[str, str] = {}
        principal, keytab = parsed.get_string(_PRINCIPAL), parsed.get_string(_KEYTAB)
        ticket_cache = None
    else:
        for name in (_PRINCIPAL, _KEYTAB):
            if name in parsed.given_names:
                raise OptionError(f"{config} and {parsed.name_of(name)} exclude each other; set only one of them")
        options = module.options
        principal = jaas_value(_PRINCIPAL, options)
        is_ibm = module.name.endswith(IBM_KERBEROS_MODULE)
        keytab, ticket_cache = _ibm_files(options, config) if is_ibm else _files(options, config)
        if _is_true(options, "renewTGT"):
            warnings.append(
                f"{config}: renewTGT has no effect; renew the ticket cache with kinit -R or k5start, or use a keytab"
            )
    principal, keytab = principal or None, _file_path(keytab)
    principal_name = config if module else parsed.name_of(_PRINCIPAL)
    if keytab is None and ticket_cache is None:
        raise OptionError(
            f"{parsed.name_of('sasl.mechanism')} is GSSAPI (Kerberos), but there is neither a keytab nor a ticket "
            f"cache (passwords are not supported, and -Djava.security.auth.login.config is not read); set {config}="
            f'{KERBEROS_MODULE} required useKeyTab=true keyTab="client.keytab" principal="alice@EXAMPLE.COM" '
            'serviceName="kafka";'
        )
    if keytab is not None and principal is None:
        raise OptionError(f"{principal_name}: the principal is missing, which a login with a keytab needs")
    if principal is not None and "_HOST" in principal:
        raise OptionError(
            f"{principal_name}: the principal contains _HOST, which Java's Krb5LoginModule does not replace "
            "either; write a name that the keytab contains"
        )
    return KerberosSettings(
        service_name=_parse_service_name(parsed, options, config),
        principal=principal,
        keytab=keytab,
        ticket_cache=ticket_cache,
        renew_window_factor=parsed.get_double("sasl.kerberos.ticket.renew.window.factor"),
        min_relogin_seconds=parsed.get_int("sasl.kerberos.min.time.before.relogin") / 1000,
    )


def _files(options: Mapping[str, str], config: str) -> tuple[str | None, str | None]:
    """Return the keytab and the ticket cache (empty: the default one), as in Java's ``validateConfiguration``."""
    keytab, ticket_cache = options.get("keyTab"), options.get("ticketCache")
    uses_keytab, uses_ticket_cache = _is_true(options, "useKeyTab"), _is_true(options, "useTicketCache")
    for option, value, switch, is_used in (
        ("keyTab", keytab, "useKeyTab", uses_keytab),
        ("ticketCache", ticket_cache, "useTicketCache", uses_ticket_cache),
    ):
        if value is not None and not is_used:
            raise OptionError(f"{config}: {option} requires {switch}=true")
    if uses_keytab and not keytab and not uses_ticket_cache:
        raise OptionError(f"{config}: useKeyTab=true requires the path of the keytab; add keyTab")
    if "isInitiator" in options and not _is_true(options, "isInitiator"):
        raise OptionError(f"{config}: isInitiator=false is for servers; remove it")
    return keytab, (_file_path(ticket_cache) or "") if uses_ticket_cache else None


def _ibm_files(options: Mapping[str, str], config: str) -> tuple[str | None, str | None]:
    """Return the keytab and the ticket cache (empty: the default one) of IBM's module, which has URLs."""
    if _is_true(options, "useDefaultKeytab"):
        raise OptionError(f"{config}: useDefaultKeytab is not supported; set useKeytab to the URL of the keytab")
    credentials_type = options.get("credsType", "initiator").lower()
    if credentials_type not in ("initiator", "both"):
        raise invalid_value(f"{config}: credsType", credentials_type, "initiator or both")
    keytab, ticket_cache = options.get("useKeytab"), options.get("useCcache")
    if ticket_cache is None and not _is_true(options, "useDefaultCcache"):
        return _url_path(keytab), None
    return _url_path(keytab), _url_path(ticket_cache) or ""


def _parse_service_name(parsed: ParsedConfig, options: Mapping[str, str], config: str) -> str:
    """Return the service name; as in Java's ``KerberosLogin``, two different ones are an error."""
    in_jaas = jaas_value(_SERVICE, options) or None
    service_name = in_jaas or parsed.get_string(_SERVICE) or ""
    name = config if in_jaas else parsed.name_of(_SERVICE)
    if in_jaas is not None and _SERVICE in parsed.given_names and parsed.get_string(_SERVICE) != in_jaas:
        raise OptionError(f"serviceName in {config} and {parsed.name_of(_SERVICE)} are different; set only one of them")
    if _SERVICE_NAME.fullmatch(service_name) is None:
        raise invalid_value(name, service_name, "the first part of the brokers' principals, such as kafka")
    return service_name


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"


def _file_path(name: str | None) -> str | None:
    """Return the path of a file that may be named as Kerberos does, with its type."""
    return re.sub("^FILE:", "", name, flags=re.IGNORECASE) or None if name is not None else None


def _url_path(url: str | None) -> str | None:
    """Return the path of a ``file:`` URL, or a path as it is."""
    return (url and file_url_path(url)) or _file_path(url)
