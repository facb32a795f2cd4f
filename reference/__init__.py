"""The reference model: pure functions over frozen dataclasses."""

if __name__ != "rocketmq_ha.reference":  # `import reference` from the root would make a second copy of every class
    raise ImportError(f"import this package as rocketmq_ha.reference, not {__name__}")
