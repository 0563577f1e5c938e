#include "model/gguf_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/gguf_split.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_llama.h"

namespace shardline {
namespace {

using ::testing::AllOf;
using testing::FailsWith;
using testing::FreshDirectory;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusHas;
using testing::TinyLlamaOptions;

int64_t ResidentBytes() {
  int64_t total = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(GgufFile, AMissingFileIsNotFoundAndNamed) {
  const std::string path = FreshDirectory() + "/none.gguf";
  EXPECT_THAT(GgufFile::Open(path), StatusHas(absl::StatusCode::kNotFound, HasSubstr(path)));
}

TEST(GgufFile, WhatIsNoRegularFileIsRefusedAtOnce) {
  const std::string directory = FreshDirectory();
  EXPECT_THAT(GgufFile::Open(directory), FailsWith(FailureKind::kInvalidRequest));
  testing::WriteBytes(directory + "/empty.gguf", "");
  EXPECT_THAT(GgufFile::Open(directory + "/empty.gguf"), FailsWith(FailureKind::kInvalidRequest));
  ASSERT_EQ(::mkfifo((directory + "/fifo.gguf").c_str(), 0600), 0);  // Nobody ever writes to it.
  EXPECT_THAT(GgufFile::Open(directory + "/fifo.gguf"), FailsWith(FailureKind::kInvalidRequest));
}

TEST(GgufFile, OpeningReadsNoTensorBytesAndFindsThemByName) {
  const std::string path = testing::MakeTinyLlama(FreshDirectory());
  auto opened = GgufFile::Open(path);
  ASSERT_THAT(opened, IsOk());
  const GgufFile file = *std::move(opened);  // Views survive the move.
  EXPECT_EQ(*file.metadata().GetString("general.architecture"), "llama");
  const GgufTensor* tensor = file.FindTensor("blk.3.ffn_down.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, (TensorShape{128, 64}));
  EXPECT_EQ(tensor->data.size(), 128u * 64u * 4u);
  EXPECT_EQ(file.PathOf(*tensor), path);
  EXPECT_EQ(file.FindTensor("blk.4.ffn_down.weight"), nullptr);
}

TEST(GgufFile, AHostileHeaderOfAHugeFileCostsNoMemory) {
  const std::string path = FreshDirectory() + "/huge.gguf";
  for (const uint64_t tensors : {uint64_t{60'000}, uint64_t{1} << 24, uint64_t{1} << 62}) {
    std::string bytes = "GGUF";
    testing::AppendNumber(bytes, uint32_t{3});
    testing::AppendNumber(bytes, tensors);
    testing::AppendNumber(bytes, uint64_t{1});
    testing::AppendGgufString(bytes, "key");
    testing::AppendNumber(bytes, uint32_t{9});         // An array
    testing::AppendNumber(bytes, uint32_t{4});         // of u32,
    testing::AppendNumber(bytes, uint64_t{20 << 20});  // 80 MiB of them.
    testing::WriteBytes(path, bytes);
    ASSERT_EQ(::truncate(path.c_str(), int64_t{4} << 30), 0);  // Sparse.
    const int64_t before = ResidentBytes();
    EXPECT_THAT(GgufFile::Open(path), FailsWith(FailureKind::kInvalidRequest));
    EXPECT_LT(ResidentBytes() - before, 16 << 20);
  }
}

TEST(GgufFile, AFileRewrittenInPlaceIsNoticed) {
  const std::string directory = FreshDirectory();
  const std::string path = testing::MakeTinyLlama(directory);
  const auto file = GgufFile::Open(path);
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(file->CheckUnchanged(), IsOk());
  // Replaced by rename: the mapping keeps the old bytes.
  std::filesystem::copy_file(path, directory + "/copy.gguf");
  std::filesystem::rename(directory + "/copy.gguf", path);
  EXPECT_THAT(file->CheckUnchanged(), IsOk());

  const auto second = GgufFile::Open(path);
  ASSERT_THAT(second, IsOk());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + 1);
  EXPECT_THAT(second->CheckUnchanged(), StatusHas(absl::StatusCode::kInvalidArgument,
                                                  AllOf(HasSubstr(path), HasSubstr("changed"))));
}

TEST(GgufSplit, OpeningAnyPartOpensTheWholeSet) {
  const std::string directory = FreshDirectory();
  const std::string whole_path = testing::MakeTinyLlama(directory, {.name = "whole"});
  testing::MakeTinyLlama(directory, {.name = "split", .split_parts = 3});
  const auto whole = GgufFile::Open(whole_path);
  ASSERT_THAT(whole, IsOk());
  for (const char* part : {"1", "2", "3"}) {
    const auto split = GgufFile::Open(directory + "/split-0000" + part + "-of-00003.gguf");
    ASSERT_THAT(split, IsOk());
    EXPECT_EQ(split->paths().size(), 3u);
    EXPECT_EQ(*split->metadata().GetString("general.architecture"), "llama");
    ASSERT_EQ(split->tensors().size(), whole->tensors().size());
    for (const GgufTensor& tensor : whole->tensors()) {
      const GgufTensor* same = split->FindTensor(tensor.name);
      ASSERT_NE(same, nullptr) << tensor.name;
      EXPECT_TRUE(
          std::equal(same->data.begin(), same->data.end(), tensor.data.begin(), tensor.data.end()));
    }
    EXPECT_THAT(split->PathOf(*split->FindTensor("output_norm.weight")),
                HasSubstr("split-00003-of-00003.gguf"));
  }
}

TEST(GgufSplit, F12AMissingPartIsNamed) {
  const std::string directory = FreshDirectory();
  const std::string path = testing::MakeTinyLlama(directory, {.split_parts = 3});
  std::filesystem::remove(directory + "/tiny-00002-of-00003.gguf");
  EXPECT_THAT(GgufFile::Open(path),
              StatusHas(absl::StatusCode::kNotFound,
                        HasSubstr("tiny-00002-of-00003.gguf: part 2 of 3 is missing")));
}

TEST(GgufSplit, F12APartOfAnotherQuantisationIsNamed) {
  for (const int parts : {2, 3}) {
    const std::string directory = FreshDirectory();
    const TinyLlamaOptions options = {
        .name = "good", .layers = 6, .weights = GgufTensorType::kQ8_0, .split_parts = parts};
    const std::string path = testing::MakeTinyLlama(directory, options);
    ASSERT_THAT(GgufFile::Open(path), IsOk());
    TinyLlamaOptions other = options;
    other.name = "other";
    other.weights = GgufTensorType::kQ4_0;
    testing::MakeTinyLlama(directory, other);
    const std::string tail = parts == 2 ? "-00002-of-00002.gguf" : "-00002-of-00003.gguf";
    std::filesystem::rename(directory + "/other" + tail, directory + "/good" + tail);
    EXPECT_THAT(GgufFile::Open(path),
                StatusHas(absl::StatusCode::kInvalidArgument,
                          AllOf(HasSubstr("good" + tail), HasSubstr("another quantisation"))));
  }
}

TEST(GgufSplit, ASetOfMixedTypesIsNoForeignSet) {
  TinyLlamaOptions options = {.layers = 6, .weights = GgufTensorType::kQ4_0, .split_parts = 3};
  for (const char* name : {"blk.0.ffn_down.weight", "blk.5.ffn_down.weight"}) {
    options.types[name] = GgufTensorType::kQ8_0;
  }
  EXPECT_THAT(GgufFile::Open(testing::MakeTinyLlama(FreshDirectory(), options)), IsOk());
}

TEST(GgufSplit, APartThatDeniesItsPlaceIsNamed) {
  const std::string directory = FreshDirectory();
  const std::string path = testing::MakeTinyLlama(directory, {.split_parts = 3});
  const std::string second = directory + "/tiny-00002-of-00003.gguf";
  std::filesystem::copy_file(directory + "/tiny-00003-of-00003.gguf", second,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(GgufFile::Open(path),
              StatusHas(absl::StatusCode::kInvalidArgument,
                        AllOf(HasSubstr(second), HasSubstr("it says it is part 3 of 3"))));
  testing::TinyLlama().WriteTo(second);
  EXPECT_THAT(GgufFile::Open(path), StatusHas(absl::StatusCode::kInvalidArgument,
                                              AllOf(HasSubstr(second), HasSubstr("no split.no"))));
}

TEST(GgufSplit, APartWithOtherTensorsOrMetadataIsNamed) {
  const std::string directory = FreshDirectory();
  const std::string path = testing::MakeTinyLlama(directory, {.split_parts = 2});
  const std::string second = directory + "/tiny-00002-of-00002.gguf";
  const auto replace_with = [&](const char* tensor, int32_t total, bool other_name) {
    GgufWriter part;
    part.SetUint16("split.no", 1)
        .SetUint16("split.count", 2)
        .SetInt32("split.tensors.count", total);
    if (other_name) part.SetString("general.name", "other");
    part.AddTensor(tensor, GgufTensorType::kF32, {1}, "abcd").WriteTo(second);
    return GgufFile::Open(path);
  };
  const int32_t total = static_cast<int32_t>(testing::TinyLlama().tensors().size());
  EXPECT_THAT(
      replace_with("blk.0.attn_norm.weight", total, false),
      StatusHas(absl::StatusCode::kInvalidArgument,
                AllOf(HasSubstr(second), HasSubstr("'blk.0.attn_norm.weight' is also in"))));
  EXPECT_THAT(replace_with("x", total, false),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("split.tensors.count says")));
  EXPECT_THAT(replace_with("x", total + 1, false),
              StatusHas(absl::StatusCode::kInvalidArgument,
                        AllOf(HasSubstr(second), HasSubstr("'split.tensors.count' differs"))));
  EXPECT_THAT(replace_with("x", total, true),
              StatusHas(absl::StatusCode::kInvalidArgument,
                        AllOf(HasSubstr(second), HasSubstr("'general.name' differs"))));
}

TEST(GgufSplit, NameAndHeaderMustAgree) {
  const std::string directory = FreshDirectory();
  const std::string path = testing::MakeTinyLlama(directory, {.split_parts = 2});
  std::filesystem::copy_file(path, directory + "/renamed.gguf");
  EXPECT_THAT(GgufFile::Open(directory + "/renamed.gguf"),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("is one of 2 parts")));
  const std::string alone = testing::TinyLlama().WriteTo(directory + "/x-00001-of-00002.gguf");
  EXPECT_THAT(GgufFile::Open(alone),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("no split.count")));
  EXPECT_THAT(GgufFile::Open(testing::TinyLlama().WriteTo(directory + "/x-00001-of-00001.gguf")),
              IsOk());
}

TEST(GgufSplit, NamesAreRecognised) {
  const auto name = ParseSplitName("/d/m-q4-00002-of-00010.gguf");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->prefix, "/d/m-q4");
  EXPECT_EQ(name->number, 2);
  EXPECT_EQ(name->count, 10);
  EXPECT_EQ(SplitPartPath(*name, 10), "/d/m-q4-00010-of-00010.gguf");
  for (const char* other :
       {"m.gguf", "m-00000-of-00003.gguf", "m-00004-of-00003.gguf", "m-0001-of-00003.gguf",
        "m-+0001-of-00003.gguf", "m-00001-of-00003.ggml", "-00001-of-00003.gguf"}) {
    EXPECT_FALSE(ParseSplitName(other).has_value()) << other;
  }
}

}  // namespace
}  // namespace shardline
