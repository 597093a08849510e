# SPDX-License-Identifier: Apache-2.0
"""What `scan` and `migrate` do: findings in old sources, and their edits."""
