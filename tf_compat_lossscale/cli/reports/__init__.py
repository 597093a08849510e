# SPDX-License-Identifier: Apache-2.0
"""The reports of `tf-lossscale scan`: a module for each format."""
