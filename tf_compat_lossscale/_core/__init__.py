"""Argument checks, weights of graphs, and the door to private TensorFlow."""
