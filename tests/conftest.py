"""Fixtures and markers of all Python tests."""

import pytest
from modes import has_cuda, run_python


@pytest.fixture
def python():
    """Runs the interpreter with the given arguments in a process of its own; see modes.run_python."""
    return run_python


def pytest_collection_modifyitems(items):
    need_cuda = [item for item in items if item.get_closest_marker("cuda")]
    if need_cuda and not has_cuda():
        for item in need_cuda:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
