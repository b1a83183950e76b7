"""The networks that `fetch.allow_networks` names."""

from __future__ import annotations

import ipaddress

from shoal.errors import SettingsError


def networks_of(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """The networks of the setting, between commas."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            found.append(ipaddress.ip_network(part))
        except ValueError as error:
            raise SettingsError(
                f"fetch.allow_networks has {part[:60]!r}, which is not a network ({error}): write 10.1.0.0/16, "
                f"127.0.0.1 or fd00::/8, with commas between them."
            ) from None
    return tuple(found)
