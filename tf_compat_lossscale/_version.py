"""The package's version, in a module that setup.py can read unimported."""

__version__ = "0.1.0"
