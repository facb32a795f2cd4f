"""How many examples a state machine runs: few in the suite, many by `--hypothesis-profile=long` of tests/stateful."""

from hypothesis import HealthCheck, settings

USUAL = 100  # the number of examples of Hypothesis's own profile
LONG = 20 * USUAL


def machine_settings(examples: int, *, steps: int) -> settings:
    """The settings of a machine. examples: in the suite; a profile with more than the usual number multiplies them."""
    return settings(
        max_examples=max(1, examples * settings.default.max_examples // USUAL),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
