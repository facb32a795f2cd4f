"""`python -m rocketmq_ha.fuzz`: the fuzz commands without the console script, from whatever tree comes first on the path."""

import sys

from rocketmq_ha.impl.cli import main

if __name__ == "__main__":
    main(["fuzz", *sys.argv[1:]], prog_name="rocketmq-ha")
