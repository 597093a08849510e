# SPDX-License-Identifier: Apache-2.0
"""The package's version; setuptools reads this module without an import."""

__version__ = "0.2.0"
