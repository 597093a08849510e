# SPDX-License-Identifier: Apache-2.0
"""Pieces of Ascend's `npu_bridge` and `npu_device`, on other hardware."""
