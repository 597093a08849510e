"""The command line, `tf-lossscale`."""
