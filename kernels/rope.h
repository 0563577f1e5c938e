#pragma once

// Rotary position embedding, from a table made once in double precision.
//
// Each pair (a, b) of a head's first rope_dims elements turns by the angle of its position and
// pair: a' = a*cos - b*sin, b' = b*cos + a*sin. Elements past rope_dims stay as they are.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device_stream.h"

namespace shardline {

// Which elements of a head form pair i.
enum class RopePairs : uint8_t {
  kInterleaved,  // (2i, 2i + 1): llama files in GGUF.
  kHalfSplit,    // (i, i + rope_dims / 2): qwen, and checkpoints as published.
};

enum class RopeStretch : uint8_t { kNone, kLinear, kYarn };

// What a model file says about its rotary embedding.
struct RopeSpec {
  int32_t rope_dims = 0;  // Rotated elements of a head; even.
  double base = 10000;    // Pair i turns base^(-2i / rope_dims) radians a position.
  RopeStretch stretch = RopeStretch::kNone;
  double factor = 1;                      // kLinear, kYarn: context is stretched by this much.
  int32_t original_context_tokens = 0;    // kYarn: the context before stretching.
  double yarn_beta_fast = 32;             // Pairs that turn more often than this keep their speed;
  double yarn_beta_slow = 1;              // less often than this are slowed down by `factor`.
  double yarn_attention_factor = 1;       // Multiplies the magnitude 1 + 0.1 ln(factor).
  std::vector<float> frequency_divisors;  // [rope_dims / 2] (llama 3), or empty: all 1.
};

// cos and sin of every position up to the context limit. Immutable; shared by all layers.
class RopeTable {
 public:
  // Fails on odd or non-positive dims, a base or factor that is not positive, divisors of another
  // length or not positive.
  static absl::StatusOr<RopeTable> Build(const RopeSpec& spec, int64_t positions_count);

  // [positions, 2, rope_dims / 2]: a row of cosines, then a row of sines.
  const float* data() const { return values_.data(); }
  int64_t positions_count() const { return positions_count_; }
  int32_t rope_dims() const { return rope_dims_; }

 private:
  RopeTable(int32_t rope_dims, int64_t positions_count);

  int32_t rope_dims_;
  int64_t positions_count_;
  std::vector<float> values_;
};

struct RopeArgs {
  float* x = nullptr;                  // [rows, heads, head_dim], rows x_stride apart; in place.
  const int32_t* positions = nullptr;  // [rows], absolute
  const RopeTable* table = nullptr;    // rope_dims <= head_dim
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t x_stride = 0;
  RopePairs pairing = RopePairs::kInterleaved;
};

// What every back end checks before it starts.
absl::Status CheckRopeArgs(const RopeArgs& args);

namespace cpu {
// Out of range when a position is not in the table; x is then untouched.
absl::Status Rope(const RopeArgs& args, DeviceStream stream);
}  // namespace cpu
namespace ref {
absl::Status Rope(const RopeArgs& args, DeviceStream stream);
}

}  // namespace shardline
