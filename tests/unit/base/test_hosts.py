"""Hosts that statements may name, in all spellings that a system takes for the same address."""

from __future__ import annotations

import pytest

from tilth.base.hosts import hosts_of, is_host_allowed

REFUSED = """169.254.169.254 169.254.0.1 0xA9FEA9FE 2852039166 0251.0376.0251.0376 169.254.43518 ::ffff:169.254.169.254
[::ffff:a9fe:a9fe] [fe80::1] fe80::1%eth0 [fd00:ec2::254] 100.100.100.200 168.63.129.16 64:ff9b::a9fe:a9fe
2002:a9fe:a9fe::1 metadata.google.internal metadata METADATA.google.internal. instance-data""".split()


@pytest.mark.parametrize("host", REFUSED)
def test_metadata_and_link_local_hosts_are_refused_unless_they_are_listed(host: str) -> None:
    assert not is_host_allowed(host, ())
    assert is_host_allowed(host, hosts_of("*"))
    assert not is_host_allowed(host, hosts_of("*.example.com, 10.0.0.0/8"))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "kafka-1", "s3.eu-west-1.amazonaws.com", "10.1.2.3", "::1"])
def test_all_other_hosts_are_allowed_without_a_list(host: str) -> None:
    assert is_host_allowed(host, hosts_of(""))


def test_a_list_allows_what_it_names() -> None:
    allowed = hosts_of("*.example.com, kafka-*, 10.0.0.0/8, 192.168.1.7, fd12::/16")
    for host in ("a.example.com", "A.Example.com.", "kafka-12", "10.255.0.1", "192.168.1.7", "[fd12::1]", "0x0a000001"):
        assert is_host_allowed(host, allowed), host
    for host in ("example.com", "aexample.com", "b.example.com.evil.org", "11.0.0.1", "192.168.1.8", "::1", "evil"):
        assert not is_host_allowed(host, allowed), host


@pytest.mark.parametrize("text", ["10.0.0.0/40", "a b", "http://a"])
def test_a_list_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        hosts_of(text)
