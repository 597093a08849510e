"""The package's version, which setup.py reads without an import."""

__version__ = "0.1.0"
