"""For all tests: the rig's fixtures, and hypothesis without a clock."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["rig.pytest_plugin"]

# How long an example takes says something about the machine, which other tests are keeping busy, and nothing about us.
settings.register_profile(
    "fairway", deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fairway")
