# SPDX-License-Identifier: Apache-2.0
"""The rules of `scan` and `migrate`, one in each file."""
