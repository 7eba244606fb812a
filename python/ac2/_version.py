"""The version of the package, which is the C++ library's."""

__version__ = "0.1.0"
