"""Errors that a user of fuzz can cause."""

import click


class FuzzError(click.ClickException):
    """One line on stderr, exit status 2."""

    exit_code = 2

    def show(self, file: object = None) -> None:
        del file
        click.echo(f"rocketmq-ha: {self.message}", err=True)
