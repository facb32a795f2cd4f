"""`python -m rocketmq_ha.fuzz`: the fuzz commands without the console script."""

from rocketmq_ha.fuzz.cli import fuzz

if __name__ == "__main__":
    fuzz(prog_name="rocketmq-ha fuzz")
