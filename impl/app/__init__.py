"""What the commands of rocketmq-ha do, without a command line: rocketmq_ha.impl.cli parses options, calls this, and prints."""
