#!/bin/sh
# The entry point of the image of campaign.Dockerfile. Spark on Kubernetes starts an executor with the argument "executor" and with
# its settings in variables; the program that reads them comes with Spark's own images, and not with its Python package.
set -eu
[ "${1:-}" = executor ] || exec "$@"
IFS='
'
# shellcheck disable=SC2046  # one option a line
exec java $(env | sed -n 's/^SPARK_JAVA_OPT_[0-9]*=//p') "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
