"""`python -m rocketmq_ha.impl.cli` is the console script."""

from rocketmq_ha.impl.cli import main

main()
