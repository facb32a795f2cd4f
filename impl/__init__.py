"""The implementation: mapped files, one selectors loop, master and slave."""

if __name__ != "rocketmq_ha.impl":  # `import impl` from the root would make a second copy of every class
    raise ImportError(f"import this package as rocketmq_ha.impl, not {__name__}")
