#pragma once

// Writes the keys and values of new tokens into their sessions' pages, as f16 (nearest-even).
//
// Only the slots of the rows' own positions are written, and none of a slice's kept rows. They
// become visible when the caller moves the session's length; until then a repeated append
// overwrites them.

#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "kernels/device_stream.h"
#include "kernels/kv_view.h"

namespace shardline {

struct AppendKvArgs {
  const float* k = nullptr;  // [rows, kv_heads, head_dim], rows k_stride floats apart; rotated.
  const float* v = nullptr;  // [rows, kv_heads, head_dim], rows v_stride floats apart.
  int64_t k_stride = 0;
  int64_t v_stride = 0;
  std::span<const SequenceSlice> slices;  // No two may write one page slot.
  KvLayerView kv;
};

namespace cpu {
absl::Status AppendKv(const AppendKvArgs& args, DeviceStream stream);
}
namespace ref {
absl::Status AppendKv(const AppendKvArgs& args, DeviceStream stream);
}

}  // namespace shardline
