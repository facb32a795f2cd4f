"""Run `report` without the console script: `python -m rocketmq_ha.analysis report ...`."""

import click

from rocketmq_ha.analysis.cli import report


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Make coverage reports from event logs."""


main.add_command(report)

if __name__ == "__main__":
    main(prog_name="python -m rocketmq_ha.analysis")
