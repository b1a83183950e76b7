"""Which addresses and ports may be contacted: all public ones, and others only if their network is allowed.

Owns only the rule: it opens and resolves nothing. Code that opens a connection checks the address here first, i.e. the
address itself and not the name that it came from. Python's `is_global` is only one of the rules: it accepts multicast,
site-local addresses and IPv4 addresses wrapped in IPv6.
"""

from __future__ import annotations

import functools
import ipaddress

from shoal.settings.sections import networks_of

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Reasons by network, the first that fits. They are counted and shown, so they are few and short.
_REFUSED: tuple[tuple[str, tuple[_Network, ...]], ...] = tuple(
    (reason, tuple(ipaddress.ip_network(text) for text in networks.split()))
    for reason, networks in (
        # AWS, Azure and GCP; Alibaba; AWS over IPv6; Azure's wire server; Oracle; GCP over IPv6.
        (
            "metadata",
            "169.254.169.254 169.254.170.2 169.254.169.253 100.100.100.200 fd00:ec2::/32 168.63.129.16 192.0.0.192"
            " fd20:ce::254",
        ),
        ("unspecified", "0.0.0.0/8 ::"),
        ("loopback", "127.0.0.0/8 ::1"),
        ("private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7"),
        ("carrier", "100.64.0.0/10"),
        ("link-local", "169.254.0.0/16 fe80::/10"),
        ("site-local", "fec0::/10"),
        ("multicast", "224.0.0.0/4 ff00::/8"),
        ("documentation", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
        ("benchmark", "198.18.0.0/15 2001:2::/48"),
        # 192.88.99.0/24 is the retired relay of 6to4. 64:ff9b:1::/48 is NAT64 inside a network (RFC 8215): its targets
        # depend on a prefix length that is unknown outside of that network.
        ("reserved", "192.0.0.0/24 192.88.99.0/24 240.0.0.0/4 64:ff9b:1::/48 100::/64 2001::/23 5f00::/16"),
    )
)
_WRAPPED_LOW = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
_UNICAST = ipaddress.IPv6Network("2000::/3")

# The ports that browsers block, from the Fetch standard (https://fetch.spec.whatwg.org/#port-blocking).
_BROWSERS = frozenset(
    (
        0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103,
        104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514,
        515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723,
        2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
    )
)  # fmt: skip
# Databases, queues and daemons that understand enough of an HTTP request to be harmed by one.
_DAEMONS = frozenset(
    (
        445, 873, 1433, 1434, 1521, 1883, 2181, 2375, 2376, 2377, 2379, 2380, 3306, 3389, 4369, 5432, 5671,
        5672, 5900, 5901, 5984, 5985, 5986, 6379, 6380, 6443, 8883, 9042, 9092, 9200, 9300, 10250, 10255, 10256,
        11211, 16379, 25672, 26379, 27017, 27018, 27019, 61616,
    )
)  # fmt: skip
_PORTS = _BROWSERS | _DAEMONS
_FTP_PORTS = _PORTS - {21}


def wrapped(address: _Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address to which a packet to this IPv6 address is delivered; None if it contains none."""
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    # The two lowest, :: and ::1, are addresses of IPv6 itself.
    if int(address) > 1 and any(address in network for network in _WRAPPED_LOW):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


class AddressGuard:
    """Refuses private addresses, and ports of other services than web servers.

    Such a port is refused in allowed networks too: a network is allowed because of its web servers.
    """

    def __init__(self, allow_networks: str = "") -> None:
        self._allowed = networks_of(allow_networks)
        # Hosts are requested repeatedly; checking all networks takes 20 us.
        self._judge = functools.lru_cache(maxsize=10_000)(self._judge_address)

    def refuses(self, address: str, port: int, *, ftp: bool = False) -> str:
        """'' if connections to the address are allowed, otherwise the reason in a word or two."""
        if port in (_FTP_PORTS if ftp else _PORTS):
            return "port"
        return self._judge(address)

    def _judge_address(self, text: str) -> str:
        try:
            # A zone (fe80::1%eth0) selects the network interface, not the destination.
            address: _Address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return "not an address"
        inner = wrapped(address)
        if self._allows(address) or (inner is not None and self._allows(inner)):
            return ""
        if inner is not None and (reason := _reason(inner)):
            return reason
        if isinstance(address, ipaddress.IPv6Address) and (
            address.ipv4_mapped is not None or address in _WRAPPED_LOW[0]
        ):
            # The system and NAT64 turn these into the IPv4 address that was just checked.
            return ""
        return _reason(address)

    def _allows(self, address: _Address) -> bool:
        return any(address in network for network in self._allowed)


def _reason(address: _Address) -> str:
    for reason, networks in _REFUSED:
        if any(address in network for network in networks):
            return reason
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return "reserved"
    return "" if address.is_global or (isinstance(address, ipaddress.IPv6Address) and address.sixtofour) else "reserved"
