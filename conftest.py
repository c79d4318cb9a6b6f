"""What holds for every test of the project is in the kit, so that the tests of tests can have it too."""

pytest_plugins = ["kit.pytest_plugin"]
