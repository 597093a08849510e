"""The bytes of checkpoints, without TensorFlow: readers and a writer."""
