# SPDX-License-Identifier: Apache-2.0
"""The names of `tf.contrib` of which this package has pieces of its own."""

from __future__ import annotations

# (module of `tf.contrib`, the module of `contrib/`, the names)
ROWS = (
  (
    "data",
    "parts.data",
    "assert_element_shape batch_and_drop_remainder "
    "padded_batch_and_drop_remainder reduce_dataset sliding_window_batch "
    "sloppy_interleave",
  ),
  (
    "distribute",
    "parts.distribute",
    "CollectiveAllReduceStrategy MirroredStrategy OneDeviceStrategy "
    "ParameterServerStrategy",
  ),
  (
    "framework",
    "parts.framework",
    "assert_scalar_int get_graph_from_inputs get_name_scope get_placeholders "
    "py_func reduce_sum_n remove_squeezable_dimensions smart_case smart_cond "
    "smart_constant_value with_same_shape with_shape zero_initializer",
  ),
  (
    "layers",
    "parts.layers",
    "bow_encoder embed_sequence embedding_lookup_unique",
  ),
  (
    "lookup",
    "parts.lookup",
    "index_table_from_tensor index_to_string_table_from_tensor",
  ),
  (
    "opt",
    "parts.opt",
    "AdamWOptimizer DecoupledWeightDecayExtension LazyAdamOptimizer "
    "MomentumWOptimizer extend_with_decoupled_weight_decay",
  ),
  (
    "opt",
    "parts.opt_rules",
    "AdaMaxOptimizer AddSignOptimizer LARSOptimizer NadamOptimizer "
    "PowerSignOptimizer",
  ),
  (
    "opt",
    "parts.opt_wrappers",
    "MovingAverageOptimizer MultitaskOptimizerWrapper "
    "VariableClippingOptimizer clip_gradients_by_global_norm",
  ),
  (
    "rnn",
    "parts.rnn",
    "FusedRNNCell FusedRNNCellAdaptor TimeReversedFusedRNN "
    "stack_bidirectional_dynamic_rnn stack_bidirectional_rnn",
  ),
  (
    "rnn",
    "parts.rnn_blocks",
    "GRUBlockCell GRUBlockCellV2 LSTMBlockCell LSTMBlockFusedCell",
  ),
  (
    "rnn",
    "parts.rnn_cells",
    "Conv1DLSTMCell Conv2DLSTMCell Conv3DLSTMCell ConvLSTMCell "
    "LayerNormBasicLSTMCell NASCell SRUCell UGRNNCell",
  ),
  (
    "rnn",
    "parts.rnn_wrappers",
    "AttentionCellWrapper EmbeddingWrapper HighwayWrapper "
    "InputProjectionWrapper OutputProjectionWrapper",
  ),
  (
    "seq2seq",
    "parts.attention",
    "AttentionMechanism AttentionWrapper AttentionWrapperState "
    "BahdanauAttention LuongAttention _BaseAttentionMechanism",
  ),
  (
    "seq2seq",
    "parts.beam_search",
    "BeamSearchDecoder BeamSearchDecoderOutput BeamSearchDecoderState "
    "FinalBeamSearchDecoderOutput gather_tree gather_tree_from_array "
    "tile_batch",
  ),
  (
    "seq2seq",
    "parts.decoder",
    "BasicDecoder BasicDecoderOutput Decoder dynamic_decode",
  ),
  (
    "seq2seq",
    "parts.helpers",
    "CustomHelper GreedyEmbeddingHelper Helper InferenceHelper "
    "SampleEmbeddingHelper ScheduledEmbeddingTrainingHelper TrainingHelper",
  ),
  ("seq2seq", "parts.seq2seq", "hardmax safe_cumprod sequence_loss"),
  ("cudnn_rnn", "parts.rnn_blocks", "CudnnCompatibleLSTMCell"),
  ("learn", "parts.learn", "ModeKeys"),
  ("learn", "parts.run_config", "RunConfig"),
  ("nn", "parts.nn", "alpha_dropout scaled_softplus"),
  ("training", "parts.training", "HParams parse_values"),
  ("sparsemax", "parts.sparsemax", "sparsemax sparsemax_loss"),
)
