"""What the tests themselves may do."""

import socket

import pytest
from pytest_socket import SocketConnectBlockedError


def test_no_test_reaches_beyond_this_machine() -> None:
    # pytest-socket warns before it raises, and warnings are errors here.
    blocked = pytest.raises((SocketConnectBlockedError, UserWarning), match=r"192\.0\.2\.1")
    with socket.socket() as probe, blocked:
        probe.connect(("192.0.2.1", 443))
