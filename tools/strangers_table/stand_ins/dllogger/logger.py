# SPDX-License-Identifier: Apache-2.0
"""The same by the name of dllogger's module."""

from dllogger import *  # noqa: F403
