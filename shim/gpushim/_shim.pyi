"""The extension module. Names of the engine are not typed one by one."""

from typing import Any

import numpy

class DeviceUnavailable(RuntimeError): ...  # noqa: N818
class FallbackError(RuntimeError): ...

REASONS: dict[str, str]

def asnumpy(x: object) -> numpy.ndarray: ...
def device() -> str: ...
def function_of(target: Any) -> Any: ...

# Its attributes are those of numpy.ndarray, with gpushim.ndarray in place of it.
ndarray: Any

def __getattr__(name: str) -> Any: ...
