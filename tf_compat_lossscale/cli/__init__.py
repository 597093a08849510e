"""The command line, `tf-lossscale`: a module for each subcommand."""
