"""Schedules, lock-step, campaign, replay, demo."""

if __name__ != "rocketmq_ha.fuzz":  # `import fuzz` from the root would make a second copy of every class
    raise ImportError(f"import this package as rocketmq_ha.fuzz, not {__name__}")
