# SPDX-License-Identifier: Apache-2.0
"""The package of a chess engine's protocol buffers."""
