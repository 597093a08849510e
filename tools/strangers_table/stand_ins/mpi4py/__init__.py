# SPDX-License-Identifier: Apache-2.0
"""MPI in a world of one process."""
