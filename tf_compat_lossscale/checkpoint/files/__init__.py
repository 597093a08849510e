# SPDX-License-Identifier: Apache-2.0
"""The bytes of checkpoints, without TensorFlow: readers and a writer."""
