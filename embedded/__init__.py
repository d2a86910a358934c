"""PostgreSQL and Valkey from wheels, for a machine that has neither: ``python -m embedded up|down|run|…``.

``embedded.servers.start(directory)`` is the same from Python; the tests use that.
"""
