"""A stand-in for CuPy: as much of it as weir.cupy touches. Its streams are numbers that the test chooses."""
from . import cuda  # noqa: F401
