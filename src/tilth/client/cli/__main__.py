"""`python -m tilth.client.cli`, the same as the `tilth` command."""

from tilth.client.cli.main import app

app()
