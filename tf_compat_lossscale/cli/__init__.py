# SPDX-License-Identifier: Apache-2.0
"""The command line, `tf-lossscale`: a module for each subcommand."""
