"""How ``celery -A tasks flower`` shows things, read from the current folder. ``FLOWER_…`` variables go before it."""

import os

_defaults = {
    # Flower shows what runs, and unless it is read-only it can stop workers: nobody else's machine needs to reach it.
    "address": "127.0.0.1",
    "read_only": True,
    # Document, version, attempt n of m and worker of a stage run are in its arguments.
    "tasks_columns": "name,args,state,received,started,runtime,worker,exception",
    "max_tasks": 10_000,  # kept in memory; the history of documents is in PostgreSQL
    "natural_time": False,
}

globals().update({name: value for name, value in _defaults.items() if f"FLOWER_{name.upper()}" not in os.environ})
