"""Addresses: what people write, and what they get wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.network.authentication import format_address, parse_address


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:7001", ("127.0.0.1", 7001)),
        ("[::1]:7001", ("::1", 7001)),
        ("[fe80::1%eth0]:0", ("fe80::1%eth0", 0)),
        ("node-7.cluster:65535", ("node-7.cluster", 65535)),
        ("localhost", ("localhost", 5)),
        ("node_7.cluster.:1", ("node_7.cluster.", 1)),
        ("[::]", ("::", 5)),
    ],
)
def test_addresses_are_read(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text, port=5) == parsed


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x:abc", "the port is 'abc'"),
        ("127.0.0.1:99999", "the port is '99999'; a port is a number from 0 to 65535"),
        ("x:-1", "the port is '-1'"),
        ("x:", "the port is ''"),
        ("x:١٢", "the port is"),
        ("::1", "is not HOST"),
        ("::1:7001", "is not HOST"),
        ("[::1", "is not HOST"),
        ("[x]:1", "is not HOST"),
        ("", "is not HOST"),
        (":7001", "is not HOST"),
        ("a b:1", "is not HOST"),
        ("a..b:1", "is not HOST"),
        ("a%..:1", "is not HOST"),
        ("[::1..]:1", "is not HOST"),
        (64 * "x" + ".org:1", "is not HOST"),
        ("x\x1b[2J:1", r"is not HOST"),
    ],
)
def test_what_is_wrong_is_said(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        parse_address(text, port=0)
    assert str(caught.value).isprintable()


def test_port_may_be_needed() -> None:
    with pytest.raises(ValueError, match=r"is not HOST:PORT or \[IPV6\]:PORT"):
        parse_address("localhost")


@given(st.ip_addresses(), st.integers(0, 65535))
def test_what_is_printed_can_be_read(host: object, port: int) -> None:
    assert parse_address(format_address(str(host), port)) == (str(host), port)


@given(st.text(max_size=40))
def test_anything_is_an_address_or_a_value_error(text: str) -> None:
    try:
        host, port = parse_address(text, port=1)
    except ValueError as error:
        host, port = "refused", 0
        shown = str(error)
    else:
        shown = format_address(host, port)

    assert host
    host.encode("idna")  # as who looks it up does
    assert 0 <= port < 65536
    assert shown.isprintable()
