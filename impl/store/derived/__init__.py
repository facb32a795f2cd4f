"""What is derived from the commit log: consume queues, the index, the topics; how they are dispatched, rebuilt and verified."""
