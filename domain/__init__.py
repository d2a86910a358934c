"""What may happen to a document, and nothing else: each function is one transition of the state machine.

Every function takes an open connection first, runs in the caller's transaction and commits nothing.
Locks are always taken in the order job, version, document.
"""
