"""Fixtures and markers of all Python tests."""

import pytest
from modes import cuda_devices, run_python


@pytest.fixture
def python():
    """Runs the interpreter with the given arguments in a process of its own; see modes.run_python."""
    return run_python


def pytest_collection_modifyitems(items):
    if any(item.get_closest_marker("cuda") for item in items) and not cuda_devices():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))
