"""Who calls: an operator's program with the admin token, or a user with a signed token that names him."""

import hmac
from datetime import UTC, datetime
from typing import Annotated, Any

import jwt
from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import SecretStr

from api.problems import Problem
from api.runtime import Runtime

ALGORITHM = "HS256"

_admin_scheme = HTTPBearer(auto_error=False, scheme_name="adminToken", description="the value of `ADMIN_TOKEN`")
_user_scheme = HTTPBearer(
    auto_error=False,
    scheme_name="userToken",
    bearerFormat="JWT",
    description="signed with `JWT_SECRET` (HS256); `sub` is the owner's id, `exp` is honoured",
)
Credentials = HTTPAuthorizationCredentials | None


async def require_admin(request: Request, given: Annotated[Credentials, Security(_admin_scheme)]) -> None:
    """Let only the bearer of the admin token pass; without one configured, nobody.

    Raises:
        Problem: FORBIDDEN, UNAUTHENTICATED.
    """
    expected = Runtime.of(request).settings.admin_token
    if expected is None:
        raise Problem("FORBIDDEN", "no ADMIN_TOKEN is set: the admin calls are closed")
    # Header bytes come decoded as Latin-1. The time of the comparison tells nothing of the token.
    shown = given.credentials.encode("latin-1", "replace") if given else b""
    if not hmac.compare_digest(shown, expected.get_secret_value().encode()):
        raise _unauthenticated("the admin token is missing or wrong")


async def authenticated_owner(request: Request, given: Annotated[Credentials, Security(_user_scheme)]) -> str:
    """The owner id of the user who calls.

    Raises:
        Problem: FORBIDDEN, UNAUTHENTICATED.
    """
    secret = Runtime.of(request).settings.jwt_secret
    return read_token(given.credentials if given else None, secret).owner_id


Owner = Annotated[str, Depends(authenticated_owner)]


class UserToken:
    """A token whose signature and times hold."""

    def __init__(self, claims: dict[str, Any]) -> None:
        self.owner_id: str = claims["sub"]
        self.expires_at = datetime.fromtimestamp(claims["exp"], UTC) if "exp" in claims else None


def read_token(token: str | None, secret: SecretStr | None) -> UserToken:
    """Check a user's token.

    Raises:
        Problem: FORBIDDEN, no secret is configured; UNAUTHENTICATED, the token is missing, forged or over.
    """
    if secret is None:
        raise Problem("FORBIDDEN", "no JWT_SECRET is set: the users' calls are closed")
    if not token:
        raise _unauthenticated("a user's token is needed")
    try:
        # The one algorithm is named here and never taken from the token: `none` and RS256 are refused.
        claims = jwt.decode(
            token, secret.get_secret_value(), algorithms=[ALGORITHM], options={"require": ["sub"], "verify_aud": False}
        )
        owner_id = claims["sub"]
        if not 1 <= len(owner_id) <= 255 or "\x00" in owner_id or not owner_id.strip():
            raise ValueError
        owner_id.encode()
        return UserToken(claims)
    except jwt.ExpiredSignatureError:
        raise _unauthenticated("the token has expired") from None
    except (jwt.InvalidTokenError, ValueError, OverflowError, RecursionError, OSError):
        raise _unauthenticated("the token is not valid") from None


def sign_token(owner_id: str, secret: SecretStr, expires_at: datetime) -> str:
    """A token for a user; your own sign-in makes such tokens in production."""
    claims = {"sub": owner_id, "exp": expires_at}
    return jwt.encode(claims, secret.get_secret_value(), algorithm=ALGORITHM)


def _unauthenticated(detail: str) -> Problem:
    return Problem("UNAUTHENTICATED", detail, {"WWW-Authenticate": "Bearer"})
