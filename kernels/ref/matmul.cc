// The specification of Matmul: what kernels/NUMERICS.md says in words, as plain loops.

#include "kernels/matmul.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/status_macros.h"
#include "kernels/cpu/panel_block.h"
#include "kernels/cpu/panel_layout.h"
#include "kernels/flush_denormals.h"
#include "kernels/matmul_check.h"

namespace shardline::ref {
namespace {

using panel::kBlock;
using panel::kLanes;
using panel::MetaKind;

struct ActivationBlock {
  int32_t q[32];
  float d;
};

ActivationBlock Quantise(const float* x) {
  float amax = 0;
  bool finite = true;
  for (int i = 0; i < kBlock; ++i) {
    finite = finite && std::isfinite(x[i]);
    amax = std::max(amax, std::fabs(x[i]));
  }
  ActivationBlock block = {};
  if (!finite) {
    block.d = std::numeric_limits<float>::quiet_NaN();
  } else if (amax >= 0x1p-100f) {
    block.d = amax / 127.0f;
    const float inverse = 127.0f / amax;
    for (int i = 0; i < kBlock; ++i) {
      block.q[i] = static_cast<int32_t>(std::nearbyint(x[i] * inverse));
    }
  }
  return block;
}

float QuantisedDot(const PackedWeight& weight, int64_t row, const float* x) {
  const panel::Layout layout = panel::LayoutOf(weight.format());
  float acc = 0;
  for (int64_t b = 0; b < weight.k() / kBlock; ++b) {
    const ActivationBlock a = Quantise(x + b * kBlock);
    const panel::Block w =
        panel::ReadBlock(weight.format(), b, row % kLanes, weight.panel(row / kLanes));
    int32_t dot[2] = {};
    int32_t sum = 0;
    for (int i = 0; i < kBlock; ++i) {
      dot[i / 16] += (w.quants[i] - layout.offset) * a.q[i];
      sum += a.q[i];
    }
    const float d = panel::FloatOfF16(w.d);
    const float m = panel::FloatOfF16(w.m);
    const float scaled_sum = a.d * static_cast<float>(sum);
    switch (layout.meta) {
      case MetaKind::kNone:
        break;
      case MetaKind::kScale:
        acc = std::fma(static_cast<float>(dot[0] + dot[1]), d * a.d, acc);
        break;
      case MetaKind::kScaleMin:
        acc = std::fma(static_cast<float>(dot[0] + dot[1]), d * a.d, acc);
        acc = std::fma(m, scaled_sum, acc);
        break;
      case MetaKind::kSubMin: {
        const float sub_d = d * static_cast<float>(w.sub[0]);
        const float sub_m = m * static_cast<float>(w.sub_m);
        acc = std::fma(static_cast<float>(dot[0] + dot[1]), sub_d * a.d, acc);
        acc = std::fma(-sub_m, scaled_sum, acc);
        break;
      }
      case MetaKind::kSubPair:
        acc = std::fma(static_cast<float>(w.sub[0] * dot[0] + w.sub[1] * dot[1]), d * a.d, acc);
        break;
    }
  }
  return acc;
}

float RoundToBf16(float value) {
  if (std::isnan(value)) return value;
  uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t dropped = bits & 0xffff;
  bits &= 0xffff0000;
  const bool odd = (bits & 0x10000) != 0;
  if (dropped > 0x8000 || (dropped == 0x8000 && odd)) bits += 0x10000;
  return std::bit_cast<float>(bits);
}

float FloatDot(const PackedWeight& weight, int64_t row, const float* x) {
  const std::byte* panel = weight.panel(row / kLanes);
  const int64_t lane = row % kLanes;
  float acc = 0;
  if (weight.format() != WeightFormat::kBF16) {
    for (int64_t k = 0; k < weight.k(); ++k) {
      acc = std::fma(panel::ReadFloat(weight.format(), k, lane, panel), x[k], acc);
    }
    return acc;
  }
  for (int64_t k = 0; k < weight.k(); k += 2) {  // An odd K ends with a pair whose odd k is zero.
    const float x_odd = k + 1 < weight.k() ? RoundToBf16(x[k + 1]) : 0.0f;
    acc = std::fma(panel::ReadFloat(weight.format(), k + 1, lane, panel), x_odd, acc);
    acc = std::fma(panel::ReadFloat(weight.format(), k, lane, panel), RoundToBf16(x[k]), acc);
  }
  return acc;
}

}  // namespace

absl::Status Matmul(const MatmulArgs& args, DeviceStream /*stream*/) {
  SL_RETURN_IF_ERROR(CheckMatmul(args));
  const ScopedFlushDenormals flush;
  for (const MatmulPart& part : args.parts) {
    const PackedWeight& weight = *part.weight;
    for (int64_t row = 0; row < args.rows; ++row) {
      const float* x = args.x + row * args.x_stride;
      float* out = part.out + row * part.out_stride;
      for (int64_t column = 0; column < weight.n(); ++column) {
        float value = panel::IsQuantised(weight.format()) ? QuantisedDot(weight, column, x)
                                                          : FloatDot(weight, column, x);
        if (part.bias != nullptr) value += part.bias[column];
        out[column] = part.accumulate ? out[column] + value : value;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace shardline::ref
