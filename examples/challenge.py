"""Connects to a cluster that asks who is there: credentials, then the answer to a challenge that only the secret gives.

The authenticator sends a random challenge; the answer is its HMAC-SHA256 under a secret that both know, so the secret
itself never travels. Run it against a cluster with such an authenticator::

    python -m examples.challenge --ingress 0=localhost:9010 --user alice --secret-file secret.txt
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import sys
from pathlib import Path

from container.client import AeronCluster
from container.errors import AuthenticationError


class HmacCredentials:
    """A :class:`container.client.CredentialsSupplier`: the user's name first, then the HMAC of each challenge."""

    def __init__(self, user: str, secret: bytes) -> None:
        self._user = user
        self._secret = secret

    def encoded_credentials(self) -> bytes:
        """Our name, for the connect request."""
        return self._user.encode()

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        """That we are: who does not know the secret cannot answer."""
        return hmac.digest(self._secret, encoded_challenge, hashlib.sha256)


def main() -> int:
    """The command line; 0 when the cluster let us in, 1 when it did not."""
    parser = argparse.ArgumentParser(description="Connect to a cluster that challenges its clients.")
    parser.add_argument("--ingress", required=True, metavar="ENDPOINTS", help="0=host:port,1=host:port,...")
    parser.add_argument("--egress", default="aeron:udp?endpoint=localhost:0", metavar="CHANNEL")
    parser.add_argument("--aeron-dir", metavar="DIR", help="directory of the media driver [AERON_DIR]")
    parser.add_argument("--user", required=True)
    parser.add_argument("--secret-file", required=True, type=Path)
    options = parser.parse_args()
    settings = {"aeron_dir": options.aeron_dir} if options.aeron_dir else {}
    try:
        with AeronCluster.connect(
            ingress_channel="aeron:udp",
            ingress_endpoints=options.ingress,
            egress_channel=options.egress,
            credentials_supplier=HmacCredentials(options.user, options.secret_file.read_bytes().strip()),
            message_timeout=20.0,
            **settings,
        ) as client:
            print(f"welcome, {options.user}: session {client.cluster_session_id}")
            return 0
    except AuthenticationError as error:
        print(f"refused: {error.detail}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
