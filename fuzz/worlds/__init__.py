"""The worlds of a campaign: world.py says what a world is, registry.py lists them."""
