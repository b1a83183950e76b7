"""The rules of the address guard, address by address; nothing here opens a socket."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import SettingsError
from shoal.fetch import AddressGuard

REFUSED = {
    "unspecified": ["0.0.0.0", "0.1.2.3", "::"],
    "loopback": ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::127.0.0.1"],
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fd12:3456::1", "::ffff:a00:1"],
    "carrier": ["100.64.0.1", "100.127.255.255"],
    "link-local": ["169.254.1.1", "fe80::1", "fe80::1%eth0", "febf::1"],
    "site-local": ["fec0::1", "feff::1"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
    "benchmark": ["198.18.0.1", "198.19.255.255", "2001:2::1"],
    "metadata": [
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
    ],
    "reserved": [
        "192.0.0.8",
        "192.88.99.1",
        "240.0.0.1",
        "255.255.255.255",
        "64:ff9b:1::808:808",
        "100::1",
        "2001::1",
        "2001:10::1",
        "5f00::1",
        "4000::1",
        "::8.8.8.8",
        "::ffff:0:8.8.8.8",
    ],
    "not an address": ["", "localhost", "127.1", "0x7f.1", "1.2.3.4.5", "[::1]"],
}
WRAPPED = [
    "::ffff:10.0.0.1",
    "::10.0.0.1",
    "64:ff9b::10.0.0.1",
    "2002:0a00:0001::1",
    # Teredo: the client's address is stored inverted.
    "2001:0:4136:e378:8000:63bf:f5ff:fffe",
]


@pytest.mark.parametrize(
    ("reason", "address"), [(reason, address) for reason, all_ in REFUSED.items() for address in all_]
)
def test_a_private_address_is_refused_with_its_kind(reason, address):
    assert AddressGuard().refuses(address, 80) == reason


@pytest.mark.parametrize("address", WRAPPED)
def test_a_private_address_wrapped_in_ipv6_is_refused_as_private(address):
    assert AddressGuard().refuses(address, 443) == "private"


@pytest.mark.parametrize(
    "address",
    ["93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "2a00:1450:4001::1", "::ffff:8.8.8.8", "64:ff9b::808:808"],
)
def test_a_public_address_is_allowed(address):
    assert AddressGuard().refuses(address, 443) == ""


@given(st.ip_addresses(v=4))
def test_every_address_that_python_calls_not_global_is_refused_in_every_ipv6_form(address):
    if address.is_global:
        return
    number = int(address)
    wrappings = (number | 0xFFFF << 32, number, number | 0x0064FF9B << 96, 0x2002 << 112 | number << 80)
    assert AddressGuard().refuses(str(address), 80)
    for wrapping in wrappings:
        assert AddressGuard().refuses(str(ipaddress.IPv6Address(wrapping)), 80)


@given(st.ip_addresses(v=6))
def test_only_global_unicast_addresses_of_ipv6_are_allowed(address):
    reason = AddressGuard().refuses(str(address), 80)
    if not reason:
        assert address in ipaddress.ip_network("2000::/3") or int(address) >> 32 in (0xFFFF, 0x0064FF9B << 64)
        assert not address.is_private or address.ipv4_mapped or address.sixtofour


@pytest.mark.parametrize("port", [0, 22, 25, 445, 2375, 3306, 5432, 6379, 9200, 10250, 11211, 27017])
def test_ports_of_databases_and_daemons_are_refused_in_allowed_networks_too(port):
    assert AddressGuard().refuses("8.8.8.8", port) == "port"
    assert AddressGuard("10.0.0.0/8").refuses("10.1.2.3", port) == "port"


@pytest.mark.parametrize("port", [80, 443, 8000, 8080, 8443, 3000, 32768, 49152, 60999])
def test_ports_that_web_servers_use_are_not_refused(port):
    assert AddressGuard().refuses("8.8.8.8", port) == ""


def test_no_ephemeral_port_is_refused():
    guard = AddressGuard("127.0.0.0/8")
    assert [port for port in range(32768, 61000) if guard.refuses("127.0.0.1", port)] == []


def test_an_allowed_network_is_allowed_and_its_neighbours_are_not():
    guard = AddressGuard("10.1.0.0/16, ::1")
    assert guard.refuses("10.1.2.3", 80) == ""
    assert guard.refuses("::ffff:10.1.2.3", 80) == ""
    assert guard.refuses("::1", 80) == ""
    assert guard.refuses("10.2.0.1", 80) == "private"
    assert guard.refuses("127.0.0.1", 80) == "loopback"


@pytest.mark.parametrize("text", ["10.0.0.0/33", "10.0.0.1/8", "example.com", "10.0.0.0/8;127.0.0.0/8", "1.2.3"])
def test_an_invalid_network_is_refused_in_one_sentence(text):
    with pytest.raises(SettingsError, match=r"\Afetch\.allow_networks has .* is not a valid network .*\.\Z") as caught:
        AddressGuard(text)
    assert "\n" not in str(caught.value)
