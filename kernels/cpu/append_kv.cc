#include "kernels/append_kv.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/append_kv.cc"
#include "hwy/foreach_target.h"  // Must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/run_tasks.h"

HWY_BEFORE_NAMESPACE();
namespace shardline::cpu::HWY_NAMESPACE {

HWY_INLINE void AppendRow(const AppendKvArgs& args, const SequenceSlice& slice, int32_t i) {
  const int64_t row = slice.first_row + i;
  const int32_t position = slice.position + i;
  const int32_t page = slice.pages[position / kPageTokens];
  const int32_t slot = position % kPageTokens;
  const int32_t dim = args.kv.head_dim;
  for (int32_t head = 0; head < args.kv.kv_heads; ++head) {
    const float* k = args.k + row * args.k_stride + head * dim;
    const float* v = args.v + row * args.v_stride + head * dim;
    uint16_t* keys = args.kv.keys(page, head) + slot;
    uint16_t* values = args.kv.values(page, head) + int64_t{slot} * dim;
    for (int32_t d = 0; d < dim; d += 16) {
      StoreHalfLanes(LoadLanes(v + d), values + d);
      alignas(32) uint16_t column[16];
      StoreHalfLanes(LoadLanes(k + d), column);
      for (int32_t j = 0; j < 16; ++j) keys[(d + j) * kPageTokens] = column[j];
    }
  }
}

void AppendSlice(const AppendKvArgs& args, const SequenceSlice& slice) {
  for (int32_t i = slice.kept_rows; i < slice.row_count; ++i) AppendRow(args, slice, i);
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/check.h"

namespace shardline::cpu {

HWY_EXPORT(AppendSlice);

// On the calling thread: a memory copy that is small beside the rest of a layer.
absl::Status AppendKv(const AppendKvArgs& args, DeviceStream /*stream*/) {
  SL_CHECK(args.kv.head_dim % 16 == 0, "head_dim ", args.kv.head_dim);
  const ScopedFlushDenormals flush;
  for (const SequenceSlice& slice : args.slices) HWY_DYNAMIC_DISPATCH(AppendSlice)(args, slice);
  return absl::OkStatus();
}

}  // namespace shardline::cpu
#endif  // HWY_ONCE
