"""Moving bytes: sockets and the selectors loop."""
