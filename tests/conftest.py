pytest_plugins = ["rig.pytest_plugin"]
