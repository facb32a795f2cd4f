"""The specification: clauses, constants, vectors. Data only."""

if __name__ != "rocketmq_ha.spec":  # `import spec` from the root would make a second copy of every class
    raise ImportError(f"import this package as rocketmq_ha.spec, not {__name__}")
