"""Warnings of recorded work: in the block that recorded it, under the errstate it was called under."""

import warnings

import gpushim
import numpy as np
import pytest
from device_arrays import check_script, device_arange

pytestmark = pytest.mark.usefixtures("no_leaks")

DIVIDE = "divide by zero encountered in divide"
INVALID = "invalid value encountered in divide"


def texts(seen):
    return sorted(str(warning.message) for warning in seen)


@pytest.fixture(autouse=True)
def settled():
    yield
    gpushim.synchronize()


def test_inside_the_block_that_recorded():
    a, zero = device_arange(5000) + 1, device_arange(5000) * 0
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = a / zero
        assert gpushim.location(result) == "pending"
    assert texts(seen) == [DIVIDE]


def test_what_is_pending_before_a_block_warns_before_it():
    a, zero = device_arange(5000) + 1, device_arange(5000) * 0
    with warnings.catch_warnings(record=True) as outer:
        warnings.simplefilter("always")
        result = a / zero  # noqa: F841 alive while it is evaluated
        with warnings.catch_warnings(record=True) as inner:
            warnings.simplefilter("always")
        assert texts(inner) == []
        assert texts(outer) == [DIVIDE]


def test_ignored_in_the_block():
    a, zero = device_arange(5000) + 1, device_arange(5000) * 0
    with warnings.catch_warnings(record=True) as outer:
        warnings.simplefilter("always")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = a / zero
        assert result[7] == np.inf
    assert texts(outer) == []


def test_turned_into_an_error_at_the_end_of_the_block():
    a, zero = device_arange(5000) + 1, device_arange(5000) * 0
    before = list(warnings.filters)
    with pytest.raises(RuntimeWarning, match=DIVIDE), warnings.catch_warnings():
        warnings.simplefilter("error")
        result = a / zero  # noqa: F841
    assert warnings.filters == before


def test_an_exception_leaves_the_block_as_usual():
    with pytest.raises(KeyError), warnings.catch_warnings(record=True):
        raise KeyError


@pytest.mark.parametrize("ignored_first", [True, False])
def test_errstate_of_each_call(ignored_first):
    """Both divisions run in one evaluation, each under the state it was called under."""
    zero, a = device_arange(5000) * 0, device_arange(5000) + 1
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        results = []
        for ignored in (ignored_first, not ignored_first):
            if ignored:
                with np.errstate(divide="ignore"):
                    results.append(a / zero)  # divides by zero
            else:
                results.append(zero / zero)  # invalid, and nothing else
        assert [gpushim.location(result) for result in results] == ["pending"] * 2
    assert texts(seen) == [INVALID]


def test_raise_takes_only_what_it_recorded():
    a, zero = device_arange(5000) + 1, device_arange(5000) * 0
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = a / zero  # noqa: F841
        with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match=DIVIDE):
            (a + 1) / zero
    assert texts(seen) == [DIVIDE]


def test_uninstall_puts_the_methods_back():
    kind = warnings.catch_warnings
    ours = kind.__enter__, kind.__exit__
    gpushim.uninstall()
    try:
        assert (kind.__enter__, kind.__exit__) == (ours[0].__wrapped__, ours[1].__wrapped__)
    finally:
        gpushim.install(device="host", min_bytes=0)
    assert (kind.__enter__, kind.__exit__) == ours


def test_somebody_patches_after_us():
    check_script("""
        import warnings
        kind, ours = warnings.catch_warnings, warnings.catch_warnings.__enter__
        kind.__enter__ = theirs = lambda self: ours(self)
        for _ in range(3):
            gpushim.uninstall()
            assert kind.__enter__ is theirs
            gpushim.install(device="host", min_bytes=0)
            zero = device_arange(5000) * 0
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                result = 1 / zero
            assert len(seen) == 1, seen
    """)
