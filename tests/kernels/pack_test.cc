#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/panel_layout.h"
#include "kernels/packed_weight.h"
#include "tests/support/status_matchers.h"
#include "weight_file.h"

namespace shardline {
namespace {

using testing::Content;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusHas;

class PackTest : public ::testing::TestWithParam<WeightFormat> {};

std::string FormatName(const ::testing::TestParamInfo<WeightFormat>& param) {
  return std::string(TraitsOf(param.param).name);
}

INSTANTIATE_TEST_SUITE_P(Formats, PackTest, ::testing::ValuesIn(testing::kAllFormats), FormatName);

TEST_P(PackTest, ADequantisedRowIsWhatThePlainDecoderReads) {
  const WeightFormat format = GetParam();
  std::mt19937 random(1);
  for (Content content : {Content::kOrdinary, Content::kLowest, Content::kZeroScale}) {
    constexpr int64_t kRows = 37;
    constexpr int64_t kColumns = 768;
    const std::vector<std::byte> file =
        testing::MakeWeightFile(format, kRows, kColumns, content, random);
    const absl::StatusOr<PackedWeight> weight = PackWeight(format, kRows, kColumns, file, {});
    ASSERT_THAT(weight, IsOk());
    for (int64_t row = 0; row < kRows; ++row) {
      std::vector<float> got(kColumns);
      DequantizeRow(*weight, row, got.data());
      const std::vector<double> want = testing::DecodeRow(
          format, kColumns, file.data() + row * testing::RowBytes(format, kColumns));
      for (size_t i = 0; i < want.size(); ++i) {
        // Scale, sub-scale and quant fit a float; only the addition of a minimum rounds, once.
        ASSERT_EQ(got[i], static_cast<float>(want[i])) << "row " << row << " element " << i;
      }
    }
  }
}

TEST_P(PackTest, AnOddNumberOfBlocksIsPackedWhole) {
  const WeightFormat format = GetParam();
  const int64_t k = 3 * std::max<int64_t>(TraitsOf(format).block_elements, 1);
  std::mt19937 random(2);
  const std::vector<std::byte> file =
      testing::MakeWeightFile(format, 5, k, Content::kOrdinary, random);
  const absl::StatusOr<PackedWeight> weight = PackWeight(format, 5, k, file, {});
  ASSERT_THAT(weight, IsOk());
  std::vector<float> got(static_cast<size_t>(k));
  DequantizeRow(*weight, 4, got.data());
  const std::vector<double> want =
      testing::DecodeRow(format, k, file.data() + 4 * testing::RowBytes(format, k));
  for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], static_cast<float>(want[i])) << i;
}

TEST_P(PackTest, PackingAddsLessThanFourPercentToTheFile) {
  constexpr int64_t kSide = 4096;
  const double file_bytes = static_cast<double>(kSide * testing::RowBytes(GetParam(), kSide));
  const double packed_bytes =
      static_cast<double>(panel::PanelCount(kSide) * panel::PanelBytes(GetParam(), kSide));
  EXPECT_LT(packed_bytes, 1.04 * file_bytes);
}

TEST_P(PackTest, AFileOfTheWrongSizeIsRefused) {
  const int64_t k = TraitsOf(GetParam()).block_elements;
  std::vector<std::byte> file(static_cast<size_t>(2 * testing::RowBytes(GetParam(), k)));
  EXPECT_THAT(PackWeight(GetParam(), 2, k, file, {}), IsOk());
  file.pop_back();
  EXPECT_THAT(PackWeight(GetParam(), 2, k, file, {}), FailsWith(FailureKind::kInvalidRequest));
  file.resize(file.size() + 2);
  EXPECT_THAT(PackWeight(GetParam(), 2, k, file, {}), FailsWith(FailureKind::kInvalidRequest));
}

TEST(Pack, KThatIsNotWholeBlocksIsRefusedByName) {
  EXPECT_THAT(PackWeight(WeightFormat::kQ4_0, 1, 48, std::vector<std::byte>(27), {}),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("k = 48")));
  EXPECT_THAT(PackWeight(WeightFormat::kQ6_K, 1, 128, std::vector<std::byte>(105), {}),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("blocks of 256")));
}

TEST(Pack, ShapesNoMatrixHasAreRefused) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{0, 32},
                             {-1, 32},
                             {1, 0},
                             {1, -32},
                             {int64_t{1} << 40, int64_t{1} << 40}}) {
    EXPECT_THAT(PackWeight(WeightFormat::kQ8_0, n, k, {}, {}),
                FailsWith(FailureKind::kInvalidRequest))
        << n << " x " << k;
  }
}

}  // namespace
}  // namespace shardline
