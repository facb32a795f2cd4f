"""Remoting: the protocol between clients, brokers and name servers (chapter 11)."""
