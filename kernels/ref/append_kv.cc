#include "kernels/append_kv.h"

#include "kernels/half.h"

namespace shardline::ref {
namespace {

void AppendRow(const AppendKvArgs& args, const SequenceSlice& slice, int32_t i) {
  const int64_t row = slice.first_row + i;
  const int32_t position = slice.position + i;
  const int32_t page = slice.pages[position / kPageTokens];
  const int32_t slot = position % kPageTokens;
  const int32_t dim = args.kv.head_dim;
  for (int32_t head = 0; head < args.kv.kv_heads; ++head) {
    const float* k = args.k + row * args.k_stride + head * dim;
    const float* v = args.v + row * args.v_stride + head * dim;
    uint16_t* keys = args.kv.keys(page, head);
    uint16_t* values = args.kv.values(page, head);
    for (int32_t d = 0; d < dim; ++d) {
      keys[d * kPageTokens + slot] = FloatToHalf(k[d]);
      values[slot * dim + d] = FloatToHalf(v[d]);
    }
  }
}

}  // namespace

absl::Status AppendKv(const AppendKvArgs& args, DeviceStream /*stream*/) {
  for (const SequenceSlice& slice : args.slices) {
    for (int32_t i = slice.kept_rows; i < slice.row_count; ++i) AppendRow(args, slice, i);
  }
  return absl::OkStatus();
}

}  // namespace shardline::ref
