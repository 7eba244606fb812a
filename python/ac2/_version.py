"""The version of the package, which is the C++ library's: ac2/version.h, to which a test holds it."""

__version__ = "0.1.0"
