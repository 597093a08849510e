# SPDX-License-Identifier: Apache-2.0
"""Formats of bytes: protocol buffers on the wire, and CRC-32C checksums."""
