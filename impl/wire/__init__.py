"""Codecs of the wire and of the records."""
