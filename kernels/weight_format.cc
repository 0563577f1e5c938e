#include "kernels/weight_format.h"

#include "base/check.h"

namespace shardline {

const WeightFormatTraits& TraitsOf(WeightFormat format) {
  static constexpr WeightFormatTraits kTraits[] = {
      {"f32", 1, 4},      {"f16", 1, 2},      {"bf16", 1, 2},     {"q8_0", 32, 34},
      {"q4_0", 32, 18},   {"q4_1", 32, 20},   {"q5_0", 32, 22},   {"q5_1", 32, 24},
      {"q4_k", 256, 144}, {"q5_k", 256, 176}, {"q6_k", 256, 210},
  };
  const auto index = static_cast<size_t>(format);
  SL_CHECK(index < sizeof(kTraits) / sizeof(kTraits[0]));
  return kTraits[index];
}

}  // namespace shardline
