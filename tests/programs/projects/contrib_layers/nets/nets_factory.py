import functools

import tensorflow as tf
from nets import vgg

networks_map = {'vgg_tiny': vgg.vgg_tiny}
arg_scopes_map = {'vgg_tiny': vgg.vgg_arg_scope}


def get_network(name):
  func = networks_map[name]

  @functools.wraps(func)
  def network_fn(images, num_classes, **kwargs):
    with tf.contrib.framework.arg_scope(arg_scopes_map[name]()):
      return func(images, num_classes, **kwargs)
  return network_fn
