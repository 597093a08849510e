"""Lets tools that know no pyproject.toml build the package."""

import setuptools

setuptools.setup()
