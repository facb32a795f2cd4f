"""`rocketmq-ha doctor` finds out why a slave does not sync. `probe` observes both ends; the checks judge what it saw."""
