"""``python -m api token OWNER``: a user's token for development, signed with JWT_SECRET."""

import argparse
import sys
from datetime import UTC, datetime, timedelta

from api.callers import sign_token
from settings import SettingsInvalid, settings


def main() -> int:
    """Print a token; 2 when the settings do not allow it."""
    parser = argparse.ArgumentParser(prog="python -m api", description=__doc__)
    token = parser.add_subparsers(required=True).add_parser("token", help="print a user's token")
    token.add_argument("owner", help="the owner id that documents are kept under")
    token.add_argument("--hours", type=float, default=12.0, help="how long it holds (default 12)")
    given = parser.parse_args()
    try:
        secret = settings().jwt_secret
    except SettingsInvalid as error:
        print(error, file=sys.stderr)
        return 2
    if secret is None:
        print("JWT_SECRET is not set.", file=sys.stderr)
        return 2
    print(sign_token(given.owner, secret, datetime.now(UTC) + timedelta(hours=given.hours)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
