"""One operator for all tests of the API tier that want one."""

import pytest

from tests.cluster.controllers.conftest import running_operator

operator = pytest.fixture(scope="session")(running_operator)
