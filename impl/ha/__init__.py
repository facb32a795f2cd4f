"""Decisions, sans-I/O: master connection, slave client, group transfer."""
