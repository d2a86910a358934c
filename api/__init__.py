"""What HTTP and WebSocket callers see: ``uvicorn api:app``.

Importing this package reads no setting; asking it for ``app`` does, so that a server with wrong ones does not start.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    app: FastAPI


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(name)
    from api.app import make_app
    from settings import SettingsInvalid, settings

    try:
        settings()
    except SettingsInvalid as error:
        # It is a SystemExit with a code, of which Python prints nothing by itself.
        print(error, file=sys.stderr)
        raise
    made = make_app()
    globals()["app"] = made
    return made
