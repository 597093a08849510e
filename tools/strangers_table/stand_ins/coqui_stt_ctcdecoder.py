# SPDX-License-Identifier: Apache-2.0
"""The same as DeepSpeech's."""

from ds_ctcdecoder import *  # noqa: F403
from ds_ctcdecoder import __version__  # noqa: F401
