"""`rocketmq-ha doctor`: why a slave does not sync. `probe` looks at both ends, the checks judge what it saw."""
