# SPDX-License-Identifier: Apache-2.0
"""Old programs: their legacy names, and how to run and migrate them."""
