"""Producers, consumers and administration: the clients of brokers and name servers."""
