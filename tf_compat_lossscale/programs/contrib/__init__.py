# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib` that neither TensorFlow nor another package has."""
