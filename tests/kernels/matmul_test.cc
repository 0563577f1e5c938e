#include "kernels/matmul.h"

#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/matmul_tables.h"
#include "kernels/cpu/targets.h"
#include "kernels/flush_denormals.h"
#include "kernels/thread_pool.h"
#include "tests/support/status_matchers.h"
#include "weight_file.h"

namespace shardline {
namespace {

using testing::Content;
using testing::FailsWith;
using testing::IsOk;

using Backend = absl::Status (*)(const MatmulArgs&, DeviceStream);

// A matrix made up, packed, with the file kept to check against.
struct Weight {
  Weight(WeightFormat format, int64_t n, int64_t k, Content content, std::mt19937& random)
      : file(testing::MakeWeightFile(format, n, k, content, random)),
        packed(PackWeight(format, n, k, file, {}).value()) {}

  std::vector<std::byte> file;
  PackedWeight packed;
};

std::vector<float> MakeInput(int64_t rows, int64_t k, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> x(static_cast<size_t>(rows * k));
  for (float& value : x) value = normal(random);
  return x;
}

// [rows, n] of one weight, by `backend`.
std::vector<float> RunMatmul(Backend backend, const PackedWeight& weight, const float* x,
                             int64_t rows, ThreadPool* pool = nullptr, const float* bias = nullptr,
                             const std::vector<float>* residual = nullptr) {
  std::vector<float> out(static_cast<size_t>(rows * weight.n()), -7.0f);
  if (residual != nullptr) out = *residual;
  const MatmulPart part = {.weight = &weight,
                           .bias = bias,
                           .out = out.data(),
                           .out_stride = weight.n(),
                           .accumulate = residual != nullptr};
  MatmulArgs args = {.x = x, .x_stride = weight.k(), .rows = rows, .parts = {&part, 1}};
  std::vector<std::byte> scratch(MatmulScratchBytes(args));
  args.scratch = scratch.data();
  args.scratch_bytes = scratch.size();
  EXPECT_THAT(backend(args, {.pool = pool}), IsOk());
  return out;
}

// Bits, except that one NaN is as good as another.
void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& want,
                    const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << what << ": element " << i << " is " << got[i] << ", expected " << want[i];
  }
}

// Runs `body` once for each target of this CPU.
template <typename Body>
void OnEachTarget(const Body& body) {
  for (const std::string& target : cpu::SupportedTargetNames()) {
    cpu::ForceTargetForTest(target);
    body(target);
    cpu::ResetTargetForTest();
  }
}

class MatmulTest : public ::testing::TestWithParam<WeightFormat> {
 protected:
  // Several blocks of every format, and odd in number for those of 32.
  int64_t k() const { return TraitsOf(GetParam()).block_elements == 256 ? 768 : 608; }

  ThreadPool one_{{.threads = 1}};
  ThreadPool two_{{.threads = 2}};
};

std::string FormatName(const ::testing::TestParamInfo<WeightFormat>& param) {
  return std::string(TraitsOf(param.param).name);
}

INSTANTIATE_TEST_SUITE_P(Formats, MatmulTest, ::testing::ValuesIn(testing::kAllFormats),
                         FormatName);

TEST_P(MatmulTest, EveryTargetAndThreadCountHasTheBitsOfTheReference) {
  std::mt19937 random(3);
  for (const int64_t n : {16, 50, 161}) {
    const Weight weight(GetParam(), n, k(), Content::kOrdinary, random);
    const std::vector<float> x = MakeInput(64, k(), random);
    const std::vector<float> want = RunMatmul(ref::Matmul, weight.packed, x.data(), 64);
    OnEachTarget([&](const std::string& target) {
      for (const int64_t rows : {1, 2, 3, 5, 8, 17, 64}) {
        for (ThreadPool* pool : {&one_, &two_}) {
          const std::vector<float> got =
              RunMatmul(cpu::Matmul, weight.packed, x.data(), rows, pool);
          ExpectSameBits(got, {want.begin(), want.begin() + rows * n},
                         target + ", " + std::to_string(rows) + " rows");
        }
      }
    });
  }
}

TEST_P(MatmulTest, ARowHasTheSameBitsAloneAndInAnyCrowd) {
  std::mt19937 random(4);
  const Weight weight(GetParam(), 35, k(), Content::kOrdinary, random);
  const std::vector<float> x = MakeInput(40, k(), random);
  OnEachTarget([&](const std::string& target) {
    std::vector<float> alone;
    for (int64_t row = 0; row < 40; ++row) {
      const std::vector<float> one =
          RunMatmul(cpu::Matmul, weight.packed, x.data() + row * k(), 1, &two_);
      alone.insert(alone.end(), one.begin(), one.end());
    }
    for (int64_t rows = 1; rows <= 40; ++rows) {
      ExpectSameBits(RunMatmul(cpu::Matmul, weight.packed, x.data(), rows, &two_),
                     {alone.begin(), alone.begin() + rows * 35},
                     target + ", " + std::to_string(rows) + " rows");
    }
  });
}

TEST_P(MatmulTest, ExtremesOfWeightsAndInputsStayExact) {
  std::mt19937 random(5);
  std::vector<float> x = MakeInput(6, k(), random);
  for (int64_t i = 0; i < k(); ++i) {
    const auto at = [&](int64_t row) -> float& { return x[static_cast<size_t>(row * k() + i)]; };
    at(0) = 127.0f;                          // All quants +127.
    at(1) = -3.5f;                           // All -127.
    at(2) = i % 2 == 0 ? 1.0f : -1.0f;       // +-127: where saturation would show.
    at(3) = i / 32 % 2 == 0 ? 0.0f : at(3);  // Zero blocks.
    at(4) *= i % 3 == 0 ? 1e-39f : 1e-35f;   // Denormals and results that become one.
    at(5) *= 1e15f;
  }
  for (Content content : {Content::kOrdinary, Content::kLowest, Content::kZeroScale,
                          Content::kDenormal, Content::kHuge}) {
    const Weight weight(GetParam(), 48, k(), content, random);
    const std::vector<float> want = RunMatmul(ref::Matmul, weight.packed, x.data(), 6);
    OnEachTarget([&](const std::string& target) {
      ExpectSameBits(RunMatmul(cpu::Matmul, weight.packed, x.data(), 6, &two_), want,
                     target + ", content " + std::to_string(static_cast<int>(content)));
      for (int64_t row = 0; row < 6; ++row) {
        ExpectSameBits(RunMatmul(cpu::Matmul, weight.packed, x.data() + row * k(), 1, &two_),
                       {want.begin() + row * 48, want.begin() + (row + 1) * 48},
                       target + ", alone");
      }
    });
  }
}

TEST_P(MatmulTest, ANonFiniteInputSpoilsItsOwnRowOnly) {
  std::mt19937 random(6);
  const Weight weight(GetParam(), 16, k(), Content::kOrdinary, random);
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    std::vector<float> x = MakeInput(3, k(), random);
    const std::vector<float> clean = RunMatmul(ref::Matmul, weight.packed, x.data(), 3);
    x[static_cast<size_t>(k() + 40)] = bad;
    OnEachTarget([&](const std::string& target) {
      const std::vector<float> got = RunMatmul(cpu::Matmul, weight.packed, x.data(), 3, &two_);
      for (size_t i = 0; i < got.size(); ++i) {
        if (i / 16 == 1) {
          EXPECT_FALSE(std::isfinite(got[i])) << target << ", input " << bad << ", element " << i;
        } else {
          EXPECT_EQ(got[i], clean[i]) << target << ", input " << bad << ", element " << i;
        }
      }
    });
  }
}

TEST_P(MatmulTest, TheReferenceIsCloseToTheExactProduct) {
  std::mt19937 random(7);
  const Weight weight(GetParam(), 24, k(), Content::kOrdinary, random);
  const std::vector<float> x = MakeInput(4, k(), random);
  const std::vector<float> got = RunMatmul(ref::Matmul, weight.packed, x.data(), 4);
  for (int64_t n = 0; n < 24; ++n) {
    const std::vector<double> w = testing::DecodeRow(
        GetParam(), k(), weight.file.data() + n * testing::RowBytes(GetParam(), k()));
    for (int64_t row = 0; row < 4; ++row) {
      double want = 0;
      double bound = 0;  // Of the sum of what rounding each input may have moved.
      for (int64_t i = 0; i < k(); ++i) {
        const double xi = x[static_cast<size_t>(row * k() + i)];
        const double wi = w[static_cast<size_t>(i)];
        want += wi * xi;
        // Half a step of the block's scale; half a bf16 step; or a float's rounding per fma.
        double step = std::abs(xi) * 0x1p-20;
        if (GetParam() == WeightFormat::kBF16) step = std::abs(xi) * 0x1p-8;
        if (TraitsOf(GetParam()).block_elements > 1) {
          double amax = 0;
          for (int64_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) {
            amax = std::max<double>(amax, std::abs(x[static_cast<size_t>(row * k() + j)]));
          }
          step = amax / 127 * 0.501;
        }
        bound += std::abs(wi) * step;
      }
      EXPECT_NEAR(got[static_cast<size_t>(row * 24 + n)], want, bound);
      // And far closer than the worst case, since errors cancel: a wrong sign or offset does not.
      EXPECT_NEAR(got[static_cast<size_t>(row * 24 + n)], want, bound * 0.25);
    }
  }
}

TEST_P(MatmulTest, BiasComesBeforeTheResidual) {
  std::mt19937 random(8);
  const Weight weight(GetParam(), 21, k(), Content::kOrdinary, random);
  const std::vector<float> x = MakeInput(3, k(), random);
  const std::vector<float> bias = MakeInput(1, 21, random);
  const std::vector<float> residual = MakeInput(3, 21, random);
  const std::vector<float> plain = RunMatmul(ref::Matmul, weight.packed, x.data(), 3);
  std::vector<float> want(plain.size());
  for (size_t i = 0; i < want.size(); ++i) want[i] = residual[i] + (plain[i] + bias[i % 21]);
  ExpectSameBits(RunMatmul(cpu::Matmul, weight.packed, x.data(), 3, &two_, bias.data(), &residual),
                 want, "cpu");
  ExpectSameBits(
      RunMatmul(ref::Matmul, weight.packed, x.data(), 3, nullptr, bias.data(), &residual), want,
      "reference");
}

TEST(Matmul, PartsOfDifferentFormatsShareOneInput) {
  std::mt19937 random(9);
  constexpr int64_t kWidth = 768;
  const Weight a(WeightFormat::kQ4_K, 40, kWidth, Content::kOrdinary, random);
  const Weight b(WeightFormat::kQ6_K, 16, kWidth, Content::kOrdinary, random);
  const Weight c(WeightFormat::kQ8_0, 7, kWidth, Content::kOrdinary, random);
  const Weight d(WeightFormat::kQ5_1, 33, kWidth, Content::kOrdinary, random);
  constexpr int64_t kRows = 37;
  constexpr int64_t kStride = 100;  // Wider than n: the columns between must not be touched.
  const std::vector<float> x = MakeInput(kRows, kWidth, random);
  ThreadPool pool({.threads = 2});
  OnEachTarget([&](const std::string& target) {
    std::vector<std::vector<float>> outs(4, std::vector<float>(kRows * kStride, -7.0f));
    std::vector<MatmulPart> parts;
    for (const Weight* weight : {&a, &b, &c, &d}) {
      parts.push_back(
          {.weight = &weight->packed, .out = outs[parts.size()].data(), .out_stride = kStride});
    }
    MatmulArgs args = {.x = x.data(), .x_stride = kWidth, .rows = kRows, .parts = parts};
    std::vector<std::byte> scratch(MatmulScratchBytes(args));
    args.scratch = scratch.data();
    args.scratch_bytes = scratch.size();
    ASSERT_THAT(cpu::Matmul(args, {.pool = &pool}), IsOk());
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t n = parts[i].weight->n();
      const std::vector<float> want = RunMatmul(ref::Matmul, *parts[i].weight, x.data(), kRows);
      std::vector<float> want_strided(kRows * kStride, -7.0f);
      for (int64_t row = 0; row < kRows; ++row) {
        std::copy_n(want.begin() + row * n, n, want_strided.begin() + row * kStride);
      }
      ExpectSameBits(outs[i], want_strided, target + ", part " + std::to_string(i));
    }
  });
}

TEST(Matmul, TheCpusOwnBf16PairInstructionHasTheBitsOfTwoFmas) {
  if (!cpu::HasPairedBf16()) GTEST_SKIP() << "SKIPPED, NOT CHECKED: no AVX512_BF16 on this CPU";
  std::mt19937 random(10);
  constexpr int64_t kWidth = 512;
  const ScopedFlushDenormals flush;
  const cpu::TileKernel paired = cpu::PairedBf16Tile(1);
  const cpu::TileKernel two_fmas = cpu::FloatTile(WeightFormat::kBF16, 1);
  for (int round = 0; round < 300; ++round) {
    // Exponents from the denormal range up, narrow enough for carries and cancellations.
    std::vector<uint16_t> panel(16 * kWidth);
    std::vector<uint16_t> x(kWidth);
    const unsigned base = round % 3 == 0 ? 0 : 100;
    for (uint16_t& bits : panel) {
      bits = static_cast<uint16_t>((random() & 0x807f) | (base + random() % 16) << 7);
    }
    for (uint16_t& bits : x) {
      bits = static_cast<uint16_t>((random() & 0x807f) | (base + random() % 16) << 7);
    }
    std::vector<float> x_wide(kWidth);
    for (size_t i = 0; i < x.size(); ++i) {
      x_wide[i] = std::bit_cast<float>(static_cast<uint32_t>(x[i]) << 16);
    }
    std::vector<float> got(16), want(16);
    paired(reinterpret_cast<const uint8_t*>(panel.data()),
           reinterpret_cast<const uint8_t*>(x.data()), kWidth, got.data());
    two_fmas(reinterpret_cast<const uint8_t*>(panel.data()),
             reinterpret_cast<const uint8_t*>(x_wide.data()), kWidth, want.data());
    ExpectSameBits(got, want, "round " + std::to_string(round));
  }
}

TEST(Matmul, AScratchOrAShapeThatDoesNotFitIsRefused) {
  std::mt19937 random(11);
  const Weight a(WeightFormat::kQ8_0, 16, 64, Content::kOrdinary, random);
  const Weight b(WeightFormat::kQ8_0, 16, 96, Content::kOrdinary, random);
  const std::vector<float> x = MakeInput(4, 96, random);
  std::vector<float> out(4 * 16);
  std::vector<MatmulPart> parts = {{.weight = &a.packed, .out = out.data(), .out_stride = 16}};
  MatmulArgs args = {.x = x.data(), .x_stride = 64, .rows = 4, .parts = parts};
  std::vector<std::byte> scratch(MatmulScratchBytes(args));
  args.scratch = scratch.data();
  args.scratch_bytes = scratch.size() - 1;
  EXPECT_THAT(cpu::Matmul(args, {}), FailsWith(FailureKind::kInvalidRequest));
  args.scratch_bytes = scratch.size();
  EXPECT_THAT(cpu::Matmul(args, {}), IsOk());
  parts.push_back({.weight = &b.packed, .out = out.data(), .out_stride = 16});
  args.parts = parts;
  EXPECT_THAT(cpu::Matmul(args, {}), FailsWith(FailureKind::kInvalidRequest));
  parts.pop_back();
  parts[0].out_stride = 15;
  args.parts = parts;
  EXPECT_THAT(cpu::Matmul(args, {}), FailsWith(FailureKind::kInvalidRequest));
}

TEST(Matmul, EveryTargetThisCpuHasIsCompiledIn) {
  const std::vector<std::string> names = cpu::SupportedTargetNames();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.back(), "AVX2");
  if (__builtin_cpu_supports("avx512vnni")) EXPECT_EQ(names.front(), "AVX3_DL");
}

}  // namespace
}  // namespace shardline
