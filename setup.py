# SPDX-License-Identifier: Apache-2.0
"""Lets tools that know no pyproject.toml build the package."""

import setuptools

setuptools.setup()
