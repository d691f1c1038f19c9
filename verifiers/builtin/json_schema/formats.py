"""The formats of JSON Schema, checked with the standard library only: other packages change no verdict."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import date

from ...reading.quiet import quiet

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))")
_DURATION = re.compile(
    r"P(?:[0-9]+W|(?=[0-9T])(?:[0-9]+Y)?(?:[0-9]+M)?(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+S)?)?)"
)
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL = re.compile(rf'(?=.{{1,64}}\Z)(?:{_ATOM}(?:\.{_ATOM})*|"(?:[ !#-\[\]-~]|\\[ -~])*")')
_UUID = re.compile("[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
_POINTER = re.compile("(?:/(?:[^~/]|~[01])*)*", re.DOTALL)


def _characters(more: str = "") -> str:
    return rf"(?:[A-Za-z0-9._~!$&'()*+,;={more}-]|%[0-9A-Fa-f]{{2}})*+"


_AUTHORITY = (
    rf"//(?:{_characters(':')}@)?(?:\[(?P<address>[0-9A-Fa-f:.]*)\]|(?P<host>{_characters()}))(?::[0-9]*)?"
    rf"(?:/{_characters(':@/')})?"
)
_URI = re.compile(
    rf"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):|(?=/|[^:]*(?:[/?#]|\Z)))(?:{_AUTHORITY}|(?!//){_characters(':@/')})"
    rf"(?:\?{_characters(':@/?')})?(?:#{_characters(':@/?')})?"
)
_WITH_HOST = ("http", "https", "ws", "wss", "ftp")


def is_date(text: str) -> bool:
    """Tell whether a text is a day of the calendar, as in 2024-02-29."""
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_time(text: str) -> bool:
    """Tell whether a text is a time with its offset, as in 09:30:00Z; a leap second is the last one of a UTC day."""
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    hour, minute, second, offset_hour, offset_minute = (int(found[group] or 0) for group in (1, 2, 3, 5, 6))
    if max(hour, offset_hour) > 23 or max(minute, offset_minute) > 59:
        return False
    offset = (60 * offset_hour + offset_minute) * (-1 if found[4] == "-" else 1)
    return second < 60 or (second == 60 and (60 * hour + minute - offset) % 1440 == 1439)


def is_date_time(text: str) -> bool:
    """Tell whether a text is a day and a time, as in 2024-02-29T09:30:00Z."""
    return text[10:11] in ("T", "t") and is_date(text[:10]) and is_time(text[11:])


def is_email(text: str) -> bool:
    """Tell whether a text is a mail address of ASCII characters."""
    local, sign, domain = text.rpartition("@")
    if not sign or not _LOCAL.fullmatch(local):
        return False
    literal = domain[1:-1] if domain[:1] == "[" and domain[-1:] == "]" else ""
    return bool(_HOST.fullmatch(domain)) or is_ipv4(literal) or is_ipv6(literal.removeprefix("IPv6:"))


def is_ipv4(text: str) -> bool:
    """Tell whether a text is an address of four numbers."""
    return _is_address(ipaddress.IPv4Address, text)


def is_ipv6(text: str) -> bool:
    """Tell whether a text is an IPv6 address without a zone."""
    return "%" not in text and _is_address(ipaddress.IPv6Address, text)


def _is_address(kind: Callable[[str], object], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def is_uri_reference(text: str) -> bool:
    """Tell whether a text is a URI, or a part of one that is relative to another."""
    found = _URI.fullmatch(text)
    if found is None or (found["address"] is not None and not is_ipv6(found["address"])):
        return False
    return (found["scheme"] or "").lower() not in _WITH_HOST or bool(found["host"] or found["address"])


def is_uri(text: str) -> bool:
    """Tell whether a text is a URI with its scheme, and with a host for schemes such as https."""
    return re.match("[A-Za-z][A-Za-z0-9+.-]*:", text) is not None and is_uri_reference(text)


@quiet()
def is_regex(text: str) -> bool:
    """Tell whether a text is a pattern of Python's `re`."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


FORMATS: dict[str, Callable[[str], bool]] = {
    "date": is_date,
    "date-time": is_date_time,
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    "email": is_email,
    "hostname": lambda text: _HOST.fullmatch(text) is not None,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "json-pointer": lambda text: _POINTER.fullmatch(text) is not None,
    "regex": is_regex,
    "time": is_time,
    "uri": is_uri,
    "uri-reference": is_uri_reference,
    "uuid": lambda text: _UUID.fullmatch(text) is not None,
}
