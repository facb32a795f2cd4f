"""The store of a broker: the commit log (log/), what is derived from it (derived/), and both together (message_store)."""
