"""Reserved ports, and the strings that name a cluster's members."""

from __future__ import annotations

import socket

import pytest

from container.testing.processes.endpoints import (
    HOST,
    MemberEndpoints,
    PortReservation,
    ingress_endpoints,
    members_string,
)


@pytest.fixture
def reservation() -> PortReservation:
    return PortReservation()


def test_a_reserved_port_is_free_for_udp_and_taken_by_nobody_else(reservation: PortReservation) -> None:
    port = reservation.take()
    other = PortReservation()
    assert not other._hold(port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind((HOST, port))
    reservation.close()
    assert other._hold(port)
    other.close()
    other.close()


def test_a_port_in_use_by_udp_is_not_taken(reservation: PortReservation) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind((HOST, 0))
        assert not reservation._hold(udp.getsockname()[1])
    reservation.close()


def test_members_are_named_as_upstream_does() -> None:
    members = [
        MemberEndpoints(0, "a:1", "a:2", "a:3", "a:4", "a:5"),
        MemberEndpoints(1, "b:1", "b:2", "b:3", "b:4", "b:5"),
    ]
    assert members_string(members) == "0,a:1,a:2,a:3,a:4,a:5|1,b:1,b:2,b:3,b:4,b:5"
    assert ingress_endpoints(members) == "0=a:1,1=b:1"


def test_endpoints_of_a_member_have_ports_of_their_own(reservation: PortReservation) -> None:
    member = MemberEndpoints.take(7, reservation)
    endpoints = [member.ingress, member.consensus, member.log, member.catchup, member.archive]
    assert member.member_id == 7
    assert len({endpoint.rpartition(":")[2] for endpoint in endpoints}) == 5
    assert all(endpoint.startswith(f"{HOST}:") for endpoint in endpoints)
    reservation.close()
