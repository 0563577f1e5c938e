#include "kernels/rope.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cc"
#include "hwy/foreach_target.h"  // Must come before highway.h.
#include "hwy/highway.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/run_tasks.h"

HWY_BEFORE_NAMESPACE();
namespace shardline::cpu::HWY_NAMESPACE {

// a' = fma(-b, sin, a * cos), b' = fma(a, sin, b * cos).
HWY_INLINE void TurnPairs(FloatVec& a, FloatVec& b, FloatVec cosine, FloatVec sine) {
  const FloatVec turned = hn::NegMulAdd(b, sine, hn::Mul(a, cosine));
  b = hn::MulAdd(a, sine, hn::Mul(b, cosine));
  a = turned;
}

HWY_INLINE void TurnInterleaved(float* head, const float* cosines, const float* sines,
                                int64_t pairs) {
  const FloatTag d;
  int64_t i = 0;
  for (; i + static_cast<int64_t>(kWidth) <= pairs; i += kWidth) {
    FloatVec a;
    FloatVec b;
    hn::LoadInterleaved2(d, head + 2 * i, a, b);
    TurnPairs(a, b, hn::LoadU(d, cosines + i), hn::LoadU(d, sines + i));
    hn::StoreInterleaved2(a, b, d, head + 2 * i);
  }
  for (; i < pairs; ++i) {
    const hn::CappedTag<float, 1> one;
    const auto a = hn::LoadU(one, head + 2 * i);
    const auto b = hn::LoadU(one, head + 2 * i + 1);
    const auto cosine = hn::LoadU(one, cosines + i);
    const auto sine = hn::LoadU(one, sines + i);
    hn::StoreU(hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), one, head + 2 * i);
    hn::StoreU(hn::MulAdd(a, sine, hn::Mul(b, cosine)), one, head + 2 * i + 1);
  }
}

HWY_INLINE void TurnHalfSplit(float* head, const float* cosines, const float* sines,
                              int64_t pairs) {
  const FloatTag d;
  int64_t i = 0;
  for (; i + static_cast<int64_t>(kWidth) <= pairs; i += kWidth) {
    FloatVec a = hn::LoadU(d, head + i);
    FloatVec b = hn::LoadU(d, head + pairs + i);
    TurnPairs(a, b, hn::LoadU(d, cosines + i), hn::LoadU(d, sines + i));
    hn::StoreU(a, d, head + i);
    hn::StoreU(b, d, head + pairs + i);
  }
  for (; i < pairs; ++i) {
    const hn::CappedTag<float, 1> one;
    const auto a = hn::LoadU(one, head + i);
    const auto b = hn::LoadU(one, head + pairs + i);
    const auto cosine = hn::LoadU(one, cosines + i);
    const auto sine = hn::LoadU(one, sines + i);
    hn::StoreU(hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), one, head + i);
    hn::StoreU(hn::MulAdd(a, sine, hn::Mul(b, cosine)), one, head + pairs + i);
  }
}

void RopeRows(const RopeArgs& args, int64_t begin, int64_t end) {
  const int64_t pairs = args.table->rope_dims() / 2;
  for (int64_t row = begin; row < end; ++row) {
    const float* cosines = args.table->data() + int64_t{args.positions[row]} * 2 * pairs;
    for (int64_t head = 0; head < args.heads; ++head) {
      float* x = args.x + row * args.x_stride + head * args.head_dim;
      if (args.pairing == RopePairs::kInterleaved) {
        TurnInterleaved(x, cosines, cosines + pairs, pairs);
      } else {
        TurnHalfSplit(x, cosines, cosines + pairs, pairs);
      }
    }
  }
}

}  // namespace shardline::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardline::cpu {

HWY_EXPORT(RopeRows);

absl::Status Rope(const RopeArgs& args, DeviceStream stream) {
  if (absl::Status status = CheckRopeArgs(args); !status.ok()) return status;
  RunRows(stream, args.rows, args.heads * args.head_dim, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RopeRows)(args, begin, end);
  });
  return absl::OkStatus();
}

}  // namespace shardline::cpu
#endif  // HWY_ONCE
