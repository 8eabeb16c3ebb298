"""host:port, as configuration writes it."""

import re
from ipaddress import IPv6Address
from typing import Final

Address = tuple[str, int]


class InvalidAddress(ValueError):
    """Not host:port."""


_HOST: Final = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*\.?")


def parse_address(text: str, *, port_zero: bool = True) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidAddress(f"{text!r} is no address: write host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            IPv6Address(host)
        except ValueError:
            raise InvalidAddress(f"{text!r}: {host} is no IPv6 address") from None
    elif not _HOST.fullmatch(host):
        raise InvalidAddress(f"{text!r} is no address: write host:port")
    if not port_zero and not int(port):
        raise InvalidAddress(f"{text!r}: port 0 cannot be connected to")
    return host, int(port)
