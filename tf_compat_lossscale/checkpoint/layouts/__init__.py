"""The names in checkpoints: what they mean, and which name is which elsewhere.

A layout is a convention of names. TensorFlow's Savers and Checkpoints,
tf.contrib, and the two kinds of control flow each have their own.
"""
