# The image of a campaign's executors on Kubernetes: Python, Java and this project. Build it from the root of a clean checkout:
#   docker build -f docs/campaign.Dockerfile -t rocketmq-ha-campaign .
# It was not tried on a cluster (docs/campaigns.md).
FROM python:3.11-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps tini && rm -rf /var/lib/apt/lists/*
COPY . /opt/rocketmq-ha
# The packages of the lock, so that Spark is that of the driver.
RUN python -m pip install --no-cache-dir --require-hashes -r /opt/rocketmq-ha/requirements.lock \
 && python -m pip install --no-cache-dir --no-deps /opt/rocketmq-ha \
 && cp /opt/rocketmq-ha/docs/campaign_executor.sh /usr/local/bin/ && rm -rf /opt/rocketmq-ha
ENV SPARK_HOME=/usr/local/lib/python3.11/site-packages/pyspark
ENTRYPOINT ["/usr/bin/tini", "--", "/usr/local/bin/campaign_executor.sh"]
