"""Where a progress server is, and the token that it may ask for."""

from __future__ import annotations

import os
from urllib.parse import SplitResult, urlsplit

from wmrl_envs.errors import ConfigurationError

__all__ = ["read_token", "server_address"]

_TOKEN_VARIABLE = "WMRL_PROGRESS_TOKEN"


def server_address(url: str) -> SplitResult:
    """Return the parts of a server's address.

    Raises:
        ConfigurationError: If it is none, or holds a secret, which is then not shown.
    """
    if "@" in url or "?" in url or "#" in url:
        raise ConfigurationError(
            "the address of a progress server is written to logs and files, so that it may hold no user, password, "
            "query or fragment: it is 'http://HOST:PORT'; put a token into WMRL_PROGRESS_TOKEN"
        )
    try:
        parts = urlsplit(url.rstrip("/"))
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        known = known and url.isascii() and url.isprintable() and " " not in url
    except ValueError:  # a port that is no number
        known = False
    if not known:
        raise ConfigurationError(
            f"{url!r} is no address of a progress server; it is 'http://HOST:PORT', such as 'http://127.0.0.1:8750'"
        )
    return parts


def read_token(variable: str | None) -> str | None:
    """Return the secret that a server asks for and a client sends.

    Args:
        variable: Name of the environment variable that holds it; ``None`` takes ``WMRL_PROGRESS_TOKEN`` if it is set.

    Raises:
        ConfigurationError: If the variable is named and not set, or holds what no header can carry; it is not shown.
    """
    name = _TOKEN_VARIABLE if variable is None else variable
    token = os.environ.get(name, "").strip()
    if not token:
        if variable is None:
            return None
        raise ConfigurationError(f"the environment variable {name!r} holds no token: set it, or name another")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError(f"the token in {name} holds characters that no token has, such as a space or line end")
    return token
