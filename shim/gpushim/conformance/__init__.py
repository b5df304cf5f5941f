"""NumPy's own tests, the array API's, and whole programs, with their array work forced to the device.

``python -m gpushim.conformance``; conformance/README.md tells how to read its table.
"""
