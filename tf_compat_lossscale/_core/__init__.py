# SPDX-License-Identifier: Apache-2.0
"""Argument checks, weights of graphs, and the door to private TensorFlow."""
