#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/argmax.h"
#include "kernels/exp_weights.h"
#include "kernels/finite.h"
#include "kernels/half.h"
#include "kernels/residual_add.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "tests/kernels/ops_fixture.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::shardline::testing::IsOk;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Half, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = HalfToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatToHalf(value), bits);
  }
}

TEST(Half, RoundsToNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = HalfToFloat(static_cast<uint16_t>(bits));
    const float high = HalfToFloat(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;  // Exact: a half has 13 bits to spare.
    ASSERT_EQ(FloatToHalf(middle), bits + (bits & 1)) << low;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, low)), bits) << low;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, high)), bits + 1) << low;
  }
  EXPECT_EQ(FloatToHalf(65519.99f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xfc00);
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(kNan))));
}

std::vector<float> Normalized(absl::Status (*op)(const RmsNormArgs&, DeviceStream),
                              const std::vector<float>& x, const std::vector<float>& weight,
                              int64_t rows, int64_t groups, DeviceStream stream) {
  const int64_t dim = static_cast<int64_t>(weight.size());
  std::vector<float> y(x.size(), kNan);
  EXPECT_THAT(op(RmsNormArgs{.x = x.data(),
                             .weight = weight.data(),
                             .y = y.data(),
                             .rows = rows,
                             .groups = groups,
                             .dim = dim,
                             .x_stride = groups * dim,
                             .y_stride = groups * dim,
                             .epsilon = 1e-5f},
                 stream),
              IsOk());
  return y;
}

TEST(RmsNorm, HasTheBitsOfTheSpecification) {
  OnEveryTarget([](DeviceStream stream) {
    for (const int64_t dim : {1, 15, 16, 17, 64, 576, 1000, 2048}) {
      for (const auto& [rows, groups] :
           std::vector<std::tuple<int64_t, int64_t>>{{1, 1}, {3, 1}, {70, 1}, {5, 4}}) {
        const std::vector<float> x =
            RandomFloats(static_cast<size_t>(rows * groups * dim), 3.0f, 7);
        const std::vector<float> weight = RandomFloats(static_cast<size_t>(dim), 1.0f, 8);
        EXPECT_TRUE(SameBits(Normalized(&cpu::RmsNorm, x, weight, rows, groups, stream),
                             Normalized(&ref::RmsNorm, x, weight, rows, groups, {})))
            << "dim " << dim << " rows " << rows;
      }
    }
  });
}

TEST(RmsNorm, IsCloseToDoublePrecision) {
  const std::vector<float> x = RandomFloats(4 * 576, 40.0f, 1);
  const std::vector<float> weight = RandomFloats(576, 1.0f, 2);
  const std::vector<float> y = Normalized(&cpu::RmsNorm, x, weight, 4, 1, {});
  for (size_t row = 0; row < 4; ++row) {
    double squares = 0;
    for (size_t i = 0; i < 576; ++i) squares += std::pow(double{x[row * 576 + i]}, 2);
    const double scale = 1 / std::sqrt(squares / 576 + 1e-5);
    for (size_t i = 0; i < 576; ++i) {
      const double want = x[row * 576 + i] * scale * weight[i];
      ASSERT_NEAR(y[row * 576 + i], want, 4e-7 * std::abs(want));
    }
  }
}

TEST(RmsNorm, KeepsZerosAndSurvivesExtremes) {
  const std::vector<float> weight(64, 1.0f);
  const std::vector<float> zeros(64, 0.0f);
  EXPECT_TRUE(SameBits(Normalized(&cpu::RmsNorm, zeros, weight, 1, 1, {}), zeros));
  const std::vector<float> large(64, 1e18f);
  for (const float y : Normalized(&cpu::RmsNorm, large, weight, 1, 1, {})) {
    EXPECT_NEAR(y, 1.0f, 1e-6f);
  }
}

std::vector<float> Gated(absl::Status (*op)(const SwiGluArgs&, DeviceStream),
                         const std::vector<float>& gate, const std::vector<float>& up, int64_t rows,
                         DeviceStream stream) {
  const int64_t dim = static_cast<int64_t>(gate.size()) / rows;
  std::vector<float> out(gate.size(), kNan);
  EXPECT_THAT(op(SwiGluArgs{.gate = gate.data(),
                            .up = up.data(),
                            .out = out.data(),
                            .rows = rows,
                            .dim = dim,
                            .gate_stride = dim,
                            .up_stride = dim,
                            .out_stride = dim},
                 stream),
              IsOk());
  return out;
}

TEST(SwiGlu, HasTheBitsOfTheSpecification) {
  OnEveryTarget([](DeviceStream stream) {
    for (const int64_t dim : {1, 16, 33, 1536}) {
      const size_t count = static_cast<size_t>(dim) * 40;
      std::vector<float> gate = RandomFloats(count, 20.0f, 3);
      const float edges[] = {0.0f, -0.0f, 87.0f, -87.0f, -87.01f, 1e30f, -1e30f, kInfinity, kNan};
      for (size_t i = 0; i < std::size(edges) && i < count; ++i) gate[i] = edges[i];
      const std::vector<float> up = RandomFloats(count, 1.0f, 4);
      EXPECT_TRUE(SameBits(Gated(&cpu::SwiGlu, gate, up, 40, stream),
                           Gated(&ref::SwiGlu, gate, up, 40, {})))
          << "dim " << dim;
    }
  });
}

TEST(SwiGlu, IsCloseToDoublePrecisionFromEndToEnd) {
  std::vector<float> gate;
  for (float x = -86.0f; x <= 100.0f; x += 0.0137f) gate.push_back(x);
  const std::vector<float> ones(gate.size(), 1.0f);
  const std::vector<float> out = Gated(&cpu::SwiGlu, gate, ones, 1, {});
  for (size_t i = 0; i < gate.size(); ++i) {
    const double want = double{gate[i]} / (1 + std::exp(-double{gate[i]}));
    ASSERT_NEAR(out[i], want, 3e-7 * std::abs(want)) << gate[i];
  }
}

TEST(SwiGlu, LetsNoNanHide) {
  const std::vector<float> out =
      Gated(&cpu::SwiGlu, {kNan, 1.0f, -1e30f, 1e30f}, {1.0f, kNan, 1.0f, 1.0f}, 1, {});
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_TRUE(std::isnan(out[1]));
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_EQ(out[3], 1e30f);
}

struct Weights {
  std::vector<float> weights;
  std::vector<float> sums;
};

Weights WeightsOf(void (*op)(const ExpWeightsArgs&), const std::vector<float>& logits, float max,
                  float scale) {
  const auto count = static_cast<int64_t>(logits.size());
  Weights out{.weights = std::vector<float>(logits.size(), kNan),
              .sums = std::vector<float>(static_cast<size_t>(WeightBlocks(count)), kNan)};
  op({.logits = logits.data(),
      .weights = out.weights.data(),
      .block_sums = out.sums.data(),
      .count = count,
      .max = max,
      .scale = scale});
  return out;
}

TEST(ExpWeights, HaveTheBitsOfTheSpecification) {
  OnEveryTarget([](DeviceStream) {
    for (const size_t count : {1U, 15U, 16U, 255U, 256U, 257U, 1000U, 49152U}) {
      for (const float scale : {1.0f, 1.25f, 3e38f, 0.01f}) {
        std::vector<float> logits = RandomFloats(count, 20.0f, 3);
        for (float& x : logits) x = std::min(x, 21.0f);
        logits[count / 2] = -kInfinity;
        logits[0] = 21.0f;
        const Weights got = WeightsOf(&cpu::ExpWeights, logits, 21.0f, scale);
        const Weights want = WeightsOf(&ref::ExpWeights, logits, 21.0f, scale);
        EXPECT_TRUE(SameBits(got.weights, want.weights)) << count;
        EXPECT_TRUE(SameBits(got.sums, want.sums)) << count;
      }
    }
  });
}

TEST(ExpWeights, AreCloseToDoublePrecision) {
  std::vector<float> logits = RandomFloats(49152, 30.0f, 8);
  const float max = *std::max_element(logits.begin(), logits.end());
  const Weights got = WeightsOf(&cpu::ExpWeights, logits, max, 1.25f);
  double sum = 0;
  double want_sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double want = std::exp((double{logits[i]} - max) * 1.25);
    ASSERT_NEAR(got.weights[i], want, 1e-5 * want + 2e-38) << logits[i];
    want_sum += want;
  }
  for (const float block : got.sums) sum += block;
  EXPECT_NEAR(sum, want_sum, 1e-6 * want_sum);
}

TEST(ExpWeights, AreTheSameWhereOnlySumsAreWanted) {
  const std::vector<float> logits = RandomFloats(1000, 5.0f, 9);
  const float max = *std::max_element(logits.begin(), logits.end());
  const Weights both = WeightsOf(&cpu::ExpWeights, logits, max, 1.0f);
  std::vector<float> sums(both.sums.size());
  cpu::ExpWeights({.logits = logits.data(), .block_sums = sums.data(), .count = 1000, .max = max});
  EXPECT_TRUE(SameBits(sums, both.sums));
}

TEST(ResidualAdd, HasTheBitsOfTheSpecification) {
  OnEveryTarget([](DeviceStream stream) {
    const std::vector<float> start = RandomFloats(70 * 577, 1.0f, 5);
    const std::vector<float> delta = RandomFloats(70 * 577, 1.0f, 6);
    std::vector<float> got = start;
    std::vector<float> want = start;
    ResidualAddArgs args{.hidden = got.data(),
                         .delta = delta.data(),
                         .rows = 70,
                         .dim = 577,
                         .hidden_stride = 577,
                         .delta_stride = 577};
    EXPECT_THAT(cpu::ResidualAdd(args, stream), IsOk());
    args.hidden = want.data();
    EXPECT_THAT(ref::ResidualAdd(args, {}), IsOk());
    EXPECT_TRUE(SameBits(got, want));
  });
}

TEST(Rope, HasTheBitsOfTheSpecificationAndLeavesTheRestAlone) {
  OnEveryTarget([](DeviceStream stream) {
    for (const auto& [head_dim, rope_dims] :
         std::vector<std::tuple<int32_t, int32_t>>{{64, 64}, {80, 20}, {128, 128}, {16, 6}}) {
      const auto table = RopeTable::Build({.rope_dims = rope_dims, .base = 1e5}, 300);
      ASSERT_THAT(table.status(), IsOk());
      for (const RopePairs pairing : {RopePairs::kInterleaved, RopePairs::kHalfSplit}) {
        const int64_t rows = 150;
        const std::vector<float> start =
            RandomFloats(static_cast<size_t>(rows * 3 * head_dim), 1.0f, 9);
        std::vector<int32_t> positions;
        for (int32_t row = 0; row < rows; ++row) positions.push_back(row * 2 + 1);
        std::vector<float> got = start;
        std::vector<float> want = start;
        RopeArgs args{.x = got.data(),
                      .positions = positions.data(),
                      .table = &*table,
                      .rows = rows,
                      .heads = 3,
                      .head_dim = head_dim,
                      .x_stride = 3 * head_dim,
                      .pairing = pairing};
        EXPECT_THAT(cpu::Rope(args, stream), IsOk());
        args.x = want.data();
        EXPECT_THAT(ref::Rope(args, {}), IsOk());
        EXPECT_TRUE(SameBits(got, want)) << head_dim << " " << rope_dims;
        for (int64_t i = rope_dims; i < head_dim; ++i) EXPECT_EQ(got[i], start[i]);
      }
    }
  });
}

TEST(Rope, TurnsPairsByTheAngleOfTheirPosition) {
  const auto table = RopeTable::Build({.rope_dims = 4, .base = 10000}, 100);
  ASSERT_THAT(table.status(), IsOk());
  const int32_t position = 99;
  std::vector<float> x = {1, 0, 0, 1};
  RopeArgs args{.x = x.data(),
                .positions = &position,
                .table = &*table,
                .rows = 1,
                .heads = 1,
                .head_dim = 4,
                .x_stride = 4};
  ASSERT_THAT(cpu::Rope(args, {}), IsOk());
  EXPECT_FLOAT_EQ(x[0], std::cos(99.0));
  EXPECT_FLOAT_EQ(x[1], std::sin(99.0));
  EXPECT_FLOAT_EQ(x[2], -std::sin(0.99));
  EXPECT_FLOAT_EQ(x[3], std::cos(0.99));
  x = {1, 1, 0, 0};
  args.pairing = RopePairs::kHalfSplit;
  ASSERT_THAT(cpu::Rope(args, {}), IsOk());
  EXPECT_FLOAT_EQ(x[0], std::cos(99.0));
  EXPECT_FLOAT_EQ(x[1], std::cos(0.99));
  EXPECT_FLOAT_EQ(x[2], std::sin(99.0));
  EXPECT_FLOAT_EQ(x[3], std::sin(0.99));
}

TEST(Rope, RefusesAPositionOutsideTheTable) {
  const auto table = RopeTable::Build({.rope_dims = 4}, 8);
  ASSERT_THAT(table.status(), IsOk());
  std::vector<float> x(8, 1.0f);
  const int32_t positions[] = {7, 8};
  const absl::Status status = cpu::Rope(RopeArgs{.x = x.data(),
                                                 .positions = positions,
                                                 .table = &*table,
                                                 .rows = 2,
                                                 .heads = 1,
                                                 .head_dim = 4,
                                                 .x_stride = 4},
                                        {});
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(x, std::vector<float>(8, 1.0f));
}

float Cosine(const RopeTable& table, int64_t position, int64_t pair) {
  return table.data()[position * table.rope_dims() + pair];
}

TEST(RopeTable, LinearScalingSlowsEveryPair) {
  const auto plain = RopeTable::Build({.rope_dims = 8}, 100);
  const auto slow =
      RopeTable::Build({.rope_dims = 8, .stretch = RopeStretch::kLinear, .factor = 4}, 400);
  ASSERT_THAT(plain.status(), IsOk());
  ASSERT_THAT(slow.status(), IsOk());
  for (int64_t position = 0; position < 100; ++position) {
    for (int64_t pair = 0; pair < 4; ++pair) {
      EXPECT_EQ(Cosine(*slow, position * 4, pair), Cosine(*plain, position, pair));
    }
  }
}

TEST(RopeTable, FrequencyDivisorsSlowTheirPair) {
  const auto plain = RopeTable::Build({.rope_dims = 8}, 100);
  const auto slow = RopeTable::Build({.rope_dims = 8, .frequency_divisors = {1, 2, 1, 8}}, 800);
  ASSERT_THAT(plain.status(), IsOk());
  ASSERT_THAT(slow.status(), IsOk());
  EXPECT_EQ(Cosine(*slow, 50, 0), Cosine(*plain, 50, 0));
  EXPECT_EQ(Cosine(*slow, 100, 1), Cosine(*plain, 50, 1));
  EXPECT_EQ(Cosine(*slow, 400, 3), Cosine(*plain, 50, 3));
}

TEST(RopeTable, YarnKeepsFastPairsAndSlowsSlowOnes) {
  const auto plain = RopeTable::Build({.rope_dims = 64}, 4096);
  const auto yarn = RopeTable::Build({.rope_dims = 64,
                                      .stretch = RopeStretch::kYarn,
                                      .factor = 4,
                                      .original_context_tokens = 1024,
                                      .yarn_attention_factor = 1 / (1 + 0.1 * std::log(4.0))},
                                     4096);
  const auto scaled = RopeTable::Build({.rope_dims = 64,
                                        .stretch = RopeStretch::kYarn,
                                        .factor = 4,
                                        .original_context_tokens = 1024},
                                       16);
  ASSERT_THAT(plain.status(), IsOk());
  ASSERT_THAT(yarn.status(), IsOk());
  ASSERT_THAT(scaled.status(), IsOk());
  EXPECT_EQ(Cosine(*yarn, 77, 0), Cosine(*plain, 77, 0));
  EXPECT_EQ(Cosine(*yarn, 4000, 31), Cosine(*plain, 1000, 31));
  EXPECT_FLOAT_EQ(Cosine(*scaled, 0, 5), 1 + 0.1 * std::log(4.0));
}

TEST(RopeTable, RefusesWhatCannotBeATable) {
  EXPECT_FALSE(RopeTable::Build({.rope_dims = 7}, 8).ok());
  EXPECT_FALSE(RopeTable::Build({.rope_dims = 8, .base = 0}, 8).ok());
  EXPECT_FALSE(RopeTable::Build({.rope_dims = 8, .base = kNan}, 8).ok());
  EXPECT_FALSE(RopeTable::Build({.rope_dims = 8}, 0).ok());
  EXPECT_FALSE(RopeTable::Build({.rope_dims = 8, .frequency_divisors = {1, 2}}, 8).ok());
  EXPECT_FALSE(RopeTable::Build({.rope_dims = 4, .frequency_divisors = {1, 0}}, 8).ok());
  EXPECT_FALSE(RopeTable::Build({.rope_dims = 4, .stretch = RopeStretch::kYarn}, 8).ok());
}

TEST(Finite, NamesTheFirstRowThatIsNot) {
  OnEveryTarget([](DeviceStream stream) {
    for (const int64_t dim : {1, 16, 19, 64}) {
      std::vector<float> x = RandomFloats(static_cast<size_t>(dim) * 5, 1e38f, 11);
      for (float& value : x) value = std::isfinite(value) ? value : 0.0f;
      const FiniteArgs args{.x = x.data(), .rows = 5, .dim = dim, .x_stride = dim};
      EXPECT_EQ(cpu::FirstNonFiniteRow(args, stream), -1);
      for (const float bad : {kNan, kInfinity, -kInfinity}) {
        for (int64_t i = 0; i < 5 * dim; ++i) {
          const float kept = x[i];
          x[i] = bad;
          ASSERT_EQ(cpu::FirstNonFiniteRow(args, stream), i / dim);
          ASSERT_EQ(ref::FirstNonFiniteRow(args, stream), i / dim);
          x[i] = kept;
        }
      }
    }
  });
}

Best BestOf(const std::vector<float>& x, DeviceStream stream) {
  Best best;
  const ArgmaxArgs args{.x = x.data(),
                        .best = &best,
                        .rows = 1,
                        .dim = static_cast<int64_t>(x.size()),
                        .x_stride = static_cast<int64_t>(x.size())};
  cpu::Argmax(args, stream);
  Best want;
  ArgmaxArgs again = args;
  again.best = &want;
  ref::Argmax(again, stream);
  EXPECT_EQ(best, want);
  return best;
}

TEST(Argmax, TiesGoToTheLowestIndexWhereverTheyAre) {
  OnEveryTarget([](DeviceStream stream) {
    for (const size_t dim : {1, 15, 16, 63, 64, 65, 2048, 2049, 4100, 9000}) {
      std::vector<float> x = RandomFloats(dim, 1.0f, 3);
      BestOf(x, stream);
      for (const size_t first : {size_t{0}, dim / 3, dim / 2, dim - 1}) {
        std::vector<float> tied = x;
        for (const size_t i : {first, first + (dim - first) / 2, dim - 1}) tied[i] = 50.0f;
        EXPECT_EQ(BestOf(tied, stream), (Best{.index = static_cast<int64_t>(first), .value = 50}));
      }
    }
    EXPECT_EQ(BestOf(std::vector<float>(5000, -kInfinity), stream).index, -1);
    std::vector<float> one_left(5000, -kInfinity);
    one_left[4999] = -3.0e38f;
    EXPECT_EQ(BestOf(one_left, stream).index, 4999);
  });
}

TEST(Argmax, NanAndInfinityAreSeenInAnyPlace) {
  OnEveryTarget([](DeviceStream stream) {
    for (const size_t dim : {1, 17, 130}) {
      const std::vector<float> x = RandomFloats(dim, 1.0f, 5);
      for (size_t i = 0; i < dim; ++i) {
        for (const float bad : {kNan, kInfinity}) {
          std::vector<float> broken = x;
          broken[i] = bad;
          EXPECT_EQ(BestOf(broken, stream).index, -1) << i << " of " << dim;
        }
        std::vector<float> ruled_out = x;
        ruled_out[i] = -kInfinity;
        EXPECT_EQ(BestOf(ruled_out, stream).index >= 0, dim > 1);
      }
    }
  });
}

}  // namespace
}  // namespace shardline
