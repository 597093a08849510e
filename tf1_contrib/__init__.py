# SPDX-License-Identifier: Apache-2.0
"""Pieces of `tf.contrib` that neither TensorFlow nor another package has today.

They import TensorFlow and each other only, and know no loss scale.
"""
