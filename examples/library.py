"""A library that works for the arrays of NumPy, gpushim, CuPy and PyTorch: it asks the array for its namespace.

Principal components and the whitening that they make. Nothing here names an array library but as the last resort.
"""

from typing import Any


def namespace(x: Any) -> Any:
    """The array API namespace of an array: its own, or array-api-compat's where the library has none (PyTorch)."""
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    import array_api_compat

    return array_api_compat.array_namespace(x)


def principal_components(x: Any, n: int) -> tuple[Any, Any]:
    """The first `n` principal axes of samples x (rows), and the variance along each: shapes (n, features) and (n,)."""
    xp = namespace(x)
    centred = x - xp.mean(x, axis=0, keepdims=True)
    _, s, axes = xp.linalg.svd(centred, full_matrices=False)
    return axes[:n, :], s[:n] ** 2 / (x.shape[0] - 1)


def whiten(x: Any, n: int) -> Any:
    """Samples in the coordinates of the first `n` principal axes, with variance 1 along each."""
    xp = namespace(x)
    axes, variance = principal_components(x, n)
    return (x - xp.mean(x, axis=0, keepdims=True)) @ axes.T / xp.sqrt(variance)
