"""Spark reads the event logs and writes the coverage report."""

if __name__ != "rocketmq_ha.analysis":  # `import analysis` from the root would make a second copy of every class
    raise ImportError(f"import this package as rocketmq_ha.analysis, not {__name__}")
