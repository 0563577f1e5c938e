#pragma once

// hidden[r] = table[token[r]]: the rows of the embedding matrix, dequantised.

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device_stream.h"
#include "kernels/packed_weight.h"

namespace shardline {

struct EmbeddingArgs {
  const int32_t* tokens = nullptr;      // [rows]
  const PackedWeight* table = nullptr;  // n: the vocabulary, k: hidden_dim.
  float* hidden = nullptr;              // [rows, hidden_dim], rows hidden_stride floats apart.
  int64_t rows = 0;
  int64_t hidden_stride = 0;
};

namespace cpu {
// kInvalidRequest when a token is not in the vocabulary; hidden is then untouched.
absl::Status Embedding(const EmbeddingArgs& args, DeviceStream stream);
}  // namespace cpu
namespace ref {
absl::Status Embedding(const EmbeddingArgs& args, DeviceStream stream);
}

// What every back end checks before it starts.
absl::Status CheckEmbeddingArgs(const EmbeddingArgs& args);

}  // namespace shardline
