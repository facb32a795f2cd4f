# The image of a campaign's executors on Kubernetes: Python, Java and this project. Build it from the root of a checkout:
#   docker build -f docs/campaign.Dockerfile -t rocketmq-ha-campaign .
# It was not tried on a cluster (docs/campaigns.md).
FROM python:3.11-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps tini && rm -rf /var/lib/apt/lists/*
COPY . /opt/rocketmq-ha
RUN python -m pip install --no-cache-dir "/opt/rocketmq-ha[fuzz]" && rm -rf /opt/rocketmq-ha
ENV SPARK_HOME=/usr/local/lib/python3.11/site-packages/pyspark
ENTRYPOINT ["/usr/bin/tini", "--"]
