# SPDX-License-Identifier: Apache-2.0
"""Horovod's place: a world of one process."""
