"""The broker: it stores what producers send and serves consumers (chapters 12 to 14)."""
