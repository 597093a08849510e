# SPDX-License-Identifier: Apache-2.0
"""The one door to TensorFlow's private or version-dependent parts.

Every other module of the package uses TensorFlow's public names alone. A part
of TensorFlow that has no public name is used in this folder, once. Each use
says why it is needed, which public name would replace it, and what happens in
a release that lacks it.
"""
