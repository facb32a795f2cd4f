"""`rocketmq-ha` as a program that spark-submit takes (docs/campaigns.md): spark-submit OPTIONS campaign_job.py fuzz run ..."""

from rocketmq_ha.impl.cli import main

main()
