#include "model/gguf_header.h"

#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/gguf_file.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

using ::testing::AllOf;
using testing::AppendNumber;
using ::testing::ElementsAre;
using testing::FailsWith;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusHas;

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

absl::StatusOr<GgufHeader> Parse(const std::string& bytes) {
  return ParseGgufHeader("m.gguf", BytesOf(bytes));
}

// Refused as the file's fault, with the file's name and `why` in the message.
void ExpectRefused(const std::string& bytes, const std::string& why) {
  const auto header = Parse(bytes);
  EXPECT_THAT(header, FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(header, StatusHas(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("m.gguf: "), HasSubstr(why))));
}

GgufWriter OneTensor() {
  GgufWriter writer;
  writer.SetString("general.architecture", "llama");
  writer.AddTensor("weight", GgufTensorType::kF32, {4, 2}, std::string(32, 'x'));
  return writer;
}

// A file of one tensor with these sizes, type and offset, and no data at all.
std::string TensorTable(const std::vector<uint64_t>& shape, uint32_t type_id, uint64_t offset,
                        size_t data_bytes = 32) {
  std::string out = "GGUF";
  AppendNumber(out, uint32_t{3});
  AppendNumber(out, uint64_t{1});
  AppendNumber(out, uint64_t{0});
  testing::AppendGgufString(out, "weight");
  AppendNumber(out, static_cast<uint32_t>(shape.size()));
  for (const uint64_t size : shape) AppendNumber(out, size);
  AppendNumber(out, type_id);
  AppendNumber(out, offset);
  out.resize((out.size() + 31) / 32 * 32, '\0');
  return out + std::string(data_bytes, 'x');
}

std::string Preamble(uint32_t version, uint64_t tensors, uint64_t keys) {
  std::string out = "GGUF";
  AppendNumber(out, version);
  AppendNumber(out, tensors);
  AppendNumber(out, keys);
  return out;
}

TEST(GgufHeader, DescribesTensorsWhereTheyLie) {
  for (const uint32_t version : {2u, 3u}) {
    const std::string bytes = OneTensor().set_version(version).Encode();
    const auto header = Parse(bytes);
    ASSERT_THAT(header, IsOk());
    EXPECT_EQ(header->version, version);
    ASSERT_EQ(header->tensors.size(), 1u);
    const GgufTensor& tensor = header->tensors[0];
    EXPECT_EQ(tensor.name, "weight");
    EXPECT_EQ(tensor.type, GgufTensorType::kF32);
    EXPECT_THAT(tensor.shape, ElementsAre(4, 2));
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()),
              std::string(32, 'x'));
  }
}

TEST(GgufHeader, EveryPrefixOfAFileIsRefused) {
  GgufWriter writer = OneTensor();
  writer.SetStringArray("tokens", {"a", "bc"}).SetBool("flag", true).SetFloat32("f", 1.0f);
  const std::string bytes = writer.Encode();
  ASSERT_THAT(Parse(bytes), IsOk());
  for (size_t size = 0; size < bytes.size(); ++size) {
    // Its own allocation, so that the address sanitizer sees a read past the end.
    const std::string prefix = bytes.substr(0, size);
    EXPECT_THAT(Parse(prefix), FailsWith(FailureKind::kInvalidRequest)) << size;
  }
}

TEST(GgufHeader, F1AnImpossibleTensorCountIsRefused) {
  const std::string bytes = Preamble(3, 0x7FFFFFFFFFFFFFFF, 0);
  ASSERT_EQ(bytes.size(), 24u);
  ExpectRefused(bytes, "tensor count impossible for file of 24 bytes");
  ExpectRefused(Preamble(3, 1, 0), "tensor count impossible for file of 24 bytes");
}

TEST(GgufHeader, F2AnImpossibleKeyCountIsRefused) {
  ExpectRefused(Preamble(3, 0, 0x7FFFFFFFFFFFFFFF), "key count impossible for file of 24 bytes");
  ExpectRefused(Preamble(3, 0, UINT64_MAX), "key count impossible for file of 24 bytes");
}

TEST(GgufHeader, F3AShapeWhoseProductOverflowsIsRefused) {
  ExpectRefused(TensorTable({576, 4398046511105}, 0, 0), "'weight'");
  ExpectRefused(TensorTable({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0), "impossible shape");
  ExpectRefused(TensorTable({uint64_t{1} << 61, 1}, 0, 0), "impossible shape");  // Bytes: 2^63.
  // Wraps to 4 elements in 64 bits.
  ExpectRefused(TensorTable({4, 4611686018427387905}, 0, 0), "impossible shape");
  ExpectRefused(TensorTable({4, 0xFFFFFFFFFFFFFFFF}, 0, 0), "dimension 1 of size");
}

TEST(GgufHeader, F4ATotalThatWrapsIsRefused) {
  GgufWriter writer;
  // 2^63 - 32 bytes each: every one is a valid int64, two of them are not.
  const TensorShape shape = {(int64_t{1} << 61) - 8};
  writer.AddTensor("a", GgufTensorType::kF32, shape, std::string(32, 'x'));
  writer.AddTensor("b", GgufTensorType::kF32, shape, std::string(32, 'x'));
  ExpectRefused(writer.Encode(), "beyond the file");
}

TEST(GgufHeader, ATotalLargerThanTheFileIsRefusedThoughEachTensorFits) {
  // Two tensors on the same bytes; the total is what no file can hold.
  GgufWriter writer;
  writer.AddTensor("a", GgufTensorType::kF32, {256}, std::string(1024, 'x'));
  writer.AddTensor("b", GgufTensorType::kF32, {256}, "");
  writer.AddTensor("c", GgufTensorType::kF32, {256}, "");
  std::string bytes = writer.Encode();
  ExpectRefused(bytes, "beyond the file");
}

TEST(GgufHeader, F5ASizeOfZeroIsRefused) {
  ExpectRefused(TensorTable({0}, 0, 0), "'weight' has dimension 0 of size 0");
  ExpectRefused(TensorTable({4, 0}, 0, 0), "'weight' has dimension 1 of size 0");
}

TEST(GgufHeader, OneToFourDimensionsAreTaken) {
  EXPECT_THAT(Parse(TensorTable({8}, 0, 0)), IsOk());
  EXPECT_THAT(Parse(TensorTable({2, 2, 2, 1}, 0, 0)), IsOk());
  ExpectRefused(TensorTable({}, 0, 0), "0 dimensions");
  ExpectRefused(TensorTable({1, 1, 1, 1, 1}, 0, 0), "5 dimensions");
}

TEST(GgufHeader, F6AnEmptyKeyIsRefused) {
  GgufWriter writer;
  writer.AddRaw("", 7, std::string(1, '\1'));
  ExpectRefused(writer.Encode(), "metadata key 0 is empty");
}

TEST(GgufHeader, DoublesAreRefused) {
  GgufWriter writer;
  writer.SetBool("flag", true).AddRaw("flag", 7, std::string(1, '\0'));
  ExpectRefused(writer.Encode(), "metadata key 'flag' appears twice");

  GgufWriter tensors = OneTensor();
  tensors.AddTensor("weight", GgufTensorType::kF32, {1}, "abcd");
  ExpectRefused(tensors.Encode(), "tensor 'weight' appears twice");
}

TEST(GgufHeader, F8AnAlignmentThatIsNoPowerOfTwoWithinBoundsIsRefused) {
  for (const uint32_t alignment : {0u, 1u, 3u, 4u, 48u, 131072u, 1u << 31}) {
    GgufWriter writer = OneTensor();
    writer.SetUint32("general.alignment", alignment);
    ExpectRefused(writer.Encode(), "general.alignment");
  }
  GgufWriter text = OneTensor();
  text.SetString("general.alignment", "32");
  ExpectRefused(text.Encode(), "'general.alignment' is string");
  for (const uint32_t alignment : {8u, 32u, 64u, 65536u}) {
    EXPECT_THAT(Parse(OneTensor().set_alignment(alignment).Encode()), IsOk()) << alignment;
  }
}

TEST(GgufHeader, F9AnOffsetOutsideTheFileIsRefused) {
  const uint64_t file_bytes = TensorTable({8}, 0, 0).size();
  ExpectRefused(TensorTable({8}, 0, 0xFFFFFFFFFFFFFFE0), "'weight' at offset");
  ExpectRefused(TensorTable({8}, 0, file_bytes - 1), "not a multiple of 32");
  ExpectRefused(TensorTable({8}, 0, 32), "reaches beyond the 32 data bytes");
  ExpectRefused(TensorTable({9}, 0, 0), "reaches beyond the 32 data bytes");
  EXPECT_THAT(Parse(TensorTable({8}, 0, 0)), IsOk());
}

TEST(GgufHeader, TensorsThatShareBytesAreRefused) {
  GgufWriter writer;
  writer.AddTensor("a", GgufTensorType::kF32, {16}, std::string(32, 'x'));
  writer.AddTensor("b", GgufTensorType::kF32, {8}, std::string(64, 'x'));
  ExpectRefused(writer.Encode(), "tensor 'b' overlaps tensor 'a'");
}

TEST(GgufHeader, F10AnUnknownTensorTypeIsRefusedByName) {
  ExpectRefused(TensorTable({32}, 39, 0), "tensor 'weight' has type id 39, not supported by this");
  ExpectRefused(TensorTable({32}, 0xFFFFFFFF, 0),
                "tensor 'weight' has type id 4294967295, not supported by this build");
  ExpectRefused(TensorTable({32}, 4, 0), "type id 4");  // Q4_2, gone from the format.
}

TEST(GgufHeader, EveryKnownTypeHasTheSizeOfItsBlocks) {
  const struct {
    uint32_t id;
    uint64_t elements;
    size_t bytes;
  } rows[] = {{0, 8, 32},  {1, 8, 16},  {30, 8, 16},    {2, 64, 36},    {3, 64, 40},   {6, 64, 44},
              {7, 64, 48}, {8, 64, 68}, {12, 512, 288}, {13, 512, 352}, {14, 512, 420}};
  for (const auto& row : rows) {
    const std::string bytes = TensorTable({row.elements}, row.id, 0, row.bytes);
    const auto header = Parse(bytes);
    ASSERT_THAT(header, IsOk()) << row.id;
    EXPECT_EQ(header->tensors[0].data.size(), row.bytes) << row.id;
    ExpectRefused(TensorTable({row.elements}, row.id, 0, row.bytes - 1), "'weight'");
  }
}

TEST(GgufHeader, ARowThatIsNoWholeNumberOfBlocksIsRefused) {
  ExpectRefused(TensorTable({48, 2}, 8, 0, 4096), "not whole blocks of 32 (q8_0)");
  ExpectRefused(TensorTable({128, 2}, 12, 0, 4096), "not whole blocks of 256 (q4_k)");
}

TEST(GgufHeader, OtherFilesAndVersionsAreRefused) {
  ExpectRefused("", "not a GGUF file");
  ExpectRefused("GGML", "not a GGUF file");
  ExpectRefused(Preamble(1, 0, 0), "GGUF version 1, this build reads 2 and 3");
  ExpectRefused(Preamble(4, 0, 0), "GGUF version 4, this build reads 2 and 3");
  ExpectRefused(Preamble(0, 0, 0), "GGUF version 0");
  ExpectRefused(Preamble(0x03000000, 0, 0), "big-endian");
}

TEST(GgufHeader, ImpossibleStringsAndArraysAreRefused) {
  const auto with_value = [](uint32_t type_id, auto... numbers) {
    std::string encoded;
    (AppendNumber(encoded, numbers), ...);
    return GgufWriter().AddRaw("key", type_id, encoded + std::string(32, '\0')).Encode();
  };
  ExpectRefused(with_value(8, UINT64_MAX), "string of impossible length");
  ExpectRefused(with_value(9, uint32_t{0}, UINT64_MAX), "elements, impossible for file");
  ExpectRefused(with_value(9, uint32_t{10}, uint64_t{1} << 61), "elements, impossible for file");
  ExpectRefused(with_value(9, uint32_t{8}, uint64_t{2}, UINT64_MAX), "element 0 has an impossible");
  ExpectRefused(with_value(9, uint32_t{13}, uint64_t{0}), "unknown value type 13");
  ExpectRefused(with_value(13), "unknown value type 13");
  ExpectRefused(with_value(7, uint8_t{2}), "neither 0 nor 1");
  ExpectRefused(with_value(9, uint32_t{7}, uint64_t{1}, uint8_t{2}), "neither 0 nor 1");
  EXPECT_THAT(Parse(with_value(9, uint32_t{0}, uint64_t{32})), IsOk());
}

TEST(GgufHeader, ArraysNestThreeDeepAndNoDeeper) {
  const auto nested = [](int depth) {
    std::string encoded;
    for (int i = 1; i < depth; ++i) {
      AppendNumber(encoded, uint32_t{9});
      AppendNumber(encoded, uint64_t{1});
    }
    AppendNumber(encoded, uint32_t{0});
    AppendNumber(encoded, uint64_t{1});
    return GgufWriter().AddRaw("key", 9, encoded + "x").Encode();
  };
  EXPECT_THAT(Parse(nested(3)), IsOk());
  ExpectRefused(nested(4), "nests arrays deeper than 3");
  ExpectRefused(nested(100'000), "nests arrays deeper than 3");
}

TEST(GgufHeader, AForeignNameCannotSpoilTheMessage) {
  GgufWriter writer;
  writer.AddTensor("a\n\x1b[31m", GgufTensorType::kF32, {9}, "x");
  const auto header = Parse(writer.Encode());
  EXPECT_THAT(std::string(header.status().message()), HasSubstr(R"('a\n\x1b[31m')"));
  // 65 bytes are one more than the format allows.
  GgufWriter longer;
  longer.AddTensor(std::string(65, 'n'), GgufTensorType::kF32, {1}, "abcd");
  ExpectRefused(longer.Encode(), "tensor 0 has a name of impossible length");
}

TEST(GgufMetadata, GettersReadEveryTypeAndRefuseTheOthers) {
  GgufWriter writer;
  writer.SetUint32("u32", 7)
      .SetUint16("u16", 8)
      .SetUint64("u64", 9)
      .SetUint64("huge", UINT64_MAX)
      .SetInt32("negative", -1)
      .SetFloat32("float", 1.5f)
      .SetBool("bool", true)
      .SetString("string", "text")
      .SetStringArray("strings", {"a", "", "ccc"})
      .SetInt32Array("ints", {1, -2, 3})
      .SetFloat32Array("floats", {0.5f, -1.0f})
      .SetFloat32Array("none", {});
  const std::string bytes = writer.Encode();
  const auto header = Parse(bytes);
  ASSERT_THAT(header, IsOk());
  const GgufMetadata& metadata = header->metadata;
  EXPECT_EQ(*metadata.GetUint("u32"), 7u);
  EXPECT_EQ(*metadata.GetUint("u16"), 8u);
  EXPECT_EQ(*metadata.GetUint("u64"), 9u);
  EXPECT_EQ(*metadata.GetFloat("float"), 1.5);
  EXPECT_TRUE(*metadata.GetBool("bool"));
  EXPECT_EQ(*metadata.GetString("string"), "text");
  EXPECT_THAT(*metadata.GetStringArray("strings"), ElementsAre("a", "", "ccc"));
  EXPECT_THAT(*metadata.GetIntArray("ints"), ElementsAre(1, -2, 3));
  EXPECT_THAT(*metadata.GetFloatArray("floats"), ElementsAre(0.5f, -1.0f));
  EXPECT_THAT(*metadata.GetFloatArray("none"), ::testing::IsEmpty());
  EXPECT_EQ(*metadata.ArrayCount("strings"), 3u);

  EXPECT_THAT(metadata.GetUint("string"),
              StatusHas(absl::StatusCode::kInvalidArgument,
                        HasSubstr("m.gguf: metadata key 'string' is string, not an integer")));
  for (const char* key : {"huge", "negative", "float", "bool", "strings", "none"}) {
    EXPECT_THAT(metadata.GetUint(key), FailsWith(FailureKind::kInvalidRequest)) << key;
  }
  EXPECT_THAT(metadata.GetFloat("u32"), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(metadata.GetString("strings"), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(metadata.GetStringArray("ints"), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(metadata.GetIntArray("strings"), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(metadata.GetFloatArray("ints"), FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(metadata.GetBool("u32"), FailsWith(FailureKind::kInvalidRequest));
}

TEST(GgufMetadata, AnAbsentKeyIsNotFoundAndAFallbackIsOnlyForThat) {
  const std::string bytes = GgufWriter().SetString("text", "x").Encode();
  const auto header = Parse(bytes);
  ASSERT_THAT(header, IsOk());
  EXPECT_THAT(header->metadata.GetUint("gone"),
              StatusHas(absl::StatusCode::kNotFound, HasSubstr("m.gguf: no metadata key 'gone'")));
  EXPECT_EQ(*header->metadata.GetUintOr("gone", 5), 5u);
  EXPECT_EQ(*header->metadata.GetBoolOr("gone", true), true);
  EXPECT_THAT(header->metadata.GetUintOr("text", 5), FailsWith(FailureKind::kInvalidRequest));
}

}  // namespace
}  // namespace shardline
