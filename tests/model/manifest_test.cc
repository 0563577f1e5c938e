#include "model/manifest.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
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
using ::testing::StartsWith;
using testing::StatusHas;
using testing::TinyLlama;
using testing::TinyLlamaOptions;

ModelManifest ManifestOf(const std::string& path) {
  const auto file = GgufFile::Open(path);
  EXPECT_THAT(file, IsOk());
  const auto manifest = BuildManifest(*file);
  EXPECT_THAT(manifest, IsOk());
  return *manifest;
}

ModelManifest ManifestOf(const GgufWriter& writer) {
  const std::string bytes = writer.Encode();
  const auto file = GgufFile::View("m.gguf", std::as_bytes(std::span(bytes.data(), bytes.size())));
  EXPECT_THAT(file, IsOk());
  return *BuildManifest(*file);
}

std::string IdOf(const GgufWriter& writer) { return ModelIdOf(ManifestOf(writer)).value(); }

GgufWriter SmallModel() {
  GgufWriter writer;
  writer.SetString("general.architecture", "llama")
      .SetUint32("count", 7)
      .SetFloat32("float", 1.5f)
      .SetBool("flag", false)
      .SetStringArray("strings", {"ab", "c"})
      .SetInt32Array("ints", {1, 2})
      .AddTensor("b", GgufTensorType::kF32, {4, 2}, std::string(32, 'b'))
      .AddTensor("a", GgufTensorType::kQ8_0, {32}, std::string(34, 'a'));
  return writer;
}

TEST(ModelManifest, TheSameModelHasOneIdHoweverItIsStored) {
  const std::string directory = FreshDirectory();
  const TinyLlamaOptions options = {.name = "m", .weights = GgufTensorType::kQ8_0};
  const ModelManifest whole =
      ManifestOf(testing::TinyLlama(options).WriteTo(directory + "/a.gguf"));
  const GgufWriter writer = testing::TinyLlama(options);
  EXPECT_EQ(ManifestOf(writer.WriteSplit(directory + "/m", 3)[1]), whole);
  EXPECT_EQ(ManifestOf(writer.WriteSplit(directory + "/n", 2)[0]), whole);

  GgufWriter older = writer;
  EXPECT_EQ(ManifestOf(older.set_version(2).WriteTo(directory + "/v2.gguf")), whole);

  GgufWriter reversed = writer;
  std::reverse(reversed.tensors().begin(), reversed.tensors().end());
  EXPECT_EQ(ManifestOf(reversed.WriteTo(directory + "/reversed.gguf")), whole);

  EXPECT_THAT(ModelIdOf(whole).value(), StartsWith("sha256:"));
  EXPECT_EQ(ModelIdOf(whole).value().size(), 7u + 64u);
}

TEST(ModelManifest, KeyOrderDoesNotMatter) {
  GgufWriter one;
  one.SetUint32("x", 1).SetUint32("y", 2);
  GgufWriter two;
  two.SetUint32("y", 2).SetUint32("x", 1);
  EXPECT_EQ(IdOf(one), IdOf(two));
}

TEST(ModelManifest, AnyByteOfAnyTensorCounts) {
  const GgufWriter good = SmallModel();
  const std::string id = IdOf(good);
  for (const char* name : {"a", "b"}) {
    const size_t size = GgufWriter(good).tensor(name).bytes.size();
    for (size_t i = 0; i < size; ++i) {
      GgufWriter changed = good;
      changed.tensor(name).bytes[i] ^= 1;
      EXPECT_NE(IdOf(changed), id) << name << " byte " << i;
    }
  }
}

TEST(ModelManifest, ATensorsTypeShapeAndNameCount) {
  const std::string id = IdOf(SmallModel());
  GgufWriter shape = SmallModel();
  shape.tensor("b").shape = {2, 4};
  EXPECT_NE(IdOf(shape), id);
  GgufWriter rank = SmallModel();
  rank.tensor("b").shape = {4, 2, 1};
  EXPECT_NE(IdOf(rank), id);
  GgufWriter name = SmallModel();
  name.tensor("b").name = "c";
  EXPECT_NE(IdOf(name), id);
  GgufWriter type = SmallModel();
  type.AddTensor("t", GgufTensorType::kF16, {2}, "abcd");
  GgufWriter other_type = SmallModel();
  other_type.AddTensor("t", GgufTensorType::kBF16, {2}, "abcd");
  EXPECT_NE(IdOf(type), IdOf(other_type));
  EXPECT_NE(IdOf(SmallModel().RemoveTensor("a")), id);
}

TEST(ModelManifest, AnyMetadataValueCounts) {
  const GgufWriter changed[] = {
      SmallModel().SetString("general.architecture", "llamb"),
      SmallModel().SetUint32("count", 8),
      SmallModel().SetInt32("count", 7),  // Another type.
      SmallModel().SetFloat32("float", 1.25f),
      SmallModel().SetBool("flag", true),
      SmallModel().SetStringArray("strings", {"a", "bc"}),  // The same letters.
      SmallModel().SetStringArray("strings", {"abc"}),
      SmallModel().SetInt32Array("ints", {1, 3}),
      SmallModel().SetInt32Array("ints", {1}),
      SmallModel().SetUint32("more", 0),
      SmallModel().RemoveKey("flag"),
  };
  std::set<std::string> ids = {IdOf(SmallModel())};
  for (const GgufWriter& writer : changed) EXPECT_TRUE(ids.insert(IdOf(writer)).second);
  EXPECT_EQ(IdOf(SmallModel().SetUint16("split.no", 0)), IdOf(SmallModel()));
}

TEST(ModelManifest, TheIdIsTheRecordedOne) {
  // Recorded: an id is on disks and wires, so it may only change with the format's version.
  EXPECT_EQ(IdOf(SmallModel()),
            "sha256:1a0e3d58717827ab8573be20b23ce2aa4c418e7d310f5b44ccaec10111bfb0f6");
}

TEST(ModelManifest, AShardsTensorsAreVerifiedAndOnlyThose) {
  const GgufWriter good = SmallModel();
  const ModelManifest manifest = ManifestOf(good);
  GgufWriter bad = good;
  bad.tensor("b").bytes[31] ^= 0x40;
  const std::string path = bad.WriteTo(FreshDirectory() + "/bad.gguf");
  const auto file = GgufFile::Open(path);
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(VerifyTensors(*file, manifest, std::vector<std::string>{"a"}), IsOk());
  const auto hex = [](const TensorDigest& digest) {
    return absl::BytesToHexString(
        absl::string_view(reinterpret_cast<const char*>(digest.xxh3.data()), 16));
  };
  const absl::Status status = VerifyTensors(*file, manifest, std::vector<std::string>{"a", "b"});
  EXPECT_THAT(status, FailsWith(FailureKind::kIncompatibleRecipe));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(path), HasSubstr("tensor 'b'"), HasSubstr(hex(*manifest.Find("b"))),
                    HasSubstr(hex(*ManifestOf(bad).Find("b")))));
  EXPECT_THAT(VerifyTensors(*file, manifest, std::vector<std::string>{"gone"}),
              FailsWith(FailureKind::kInvalidRequest));
  EXPECT_THAT(VerifyMetadata(*file, manifest), IsOk());
}

TEST(ModelManifest, AnotherShapeOrMetadataIsAnotherRecipe) {
  const ModelManifest manifest = ManifestOf(SmallModel());
  GgufWriter other = SmallModel();
  other.tensor("b").shape = {2, 4};
  other.SetUint32("count", 8);
  const std::string bytes = other.Encode();
  const auto file = GgufFile::View("m.gguf", std::as_bytes(std::span(bytes.data(), bytes.size())));
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(VerifyTensors(*file, manifest, std::vector<std::string>{"b"}),
              StatusHas(absl::StatusCode::kFailedPrecondition,
                        AllOf(HasSubstr("f32 2x4"), HasSubstr("f32 4x2"))));
  EXPECT_THAT(VerifyMetadata(*file, manifest), FailsWith(FailureKind::kIncompatibleRecipe));
}

TEST(ModelManifest, SurvivesTheWire) {
  const ModelManifest manifest = ManifestOf(TinyLlama());
  const std::string bytes = SerializeManifest(manifest);
  const auto parsed = ParseManifest(bytes);
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(*parsed, manifest);
  EXPECT_EQ(ModelIdOf(*parsed), ModelIdOf(manifest));
}

TEST(ModelManifest, ForeignBytesAreRefusedOrReadBackTheSame) {
  const std::string good = SerializeManifest(ManifestOf(SmallModel()));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(ParseManifest(good.substr(0, size)), FailsWith(FailureKind::kInvalidRequest));
  }
  EXPECT_THAT(ParseManifest(good + "x"), FailsWith(FailureKind::kInvalidRequest));
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char flip : {'\x01', '\x80'}) {
      std::string changed = good;
      changed[i] ^= flip;
      const auto parsed = ParseManifest(changed);
      if (parsed.ok()) EXPECT_EQ(SerializeManifest(*parsed), changed);
    }
  }
}

TEST(ModelManifest, ACountBeyondTheBytesIsRefused) {
  std::string bytes = SerializeManifest({});
  ASSERT_THAT(ParseManifest(bytes), IsOk());
  bytes.replace(bytes.size() - 4, 4, "\xff\xff\xff\xff");
  EXPECT_THAT(ParseManifest(bytes),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("tensor count 4294967295")));
}

TEST(ModelManifest, TensorsOutOfOrderAreRefused) {
  ModelManifest manifest = ManifestOf(SmallModel());
  std::swap(manifest.tensors[0], manifest.tensors[1]);
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest)),
              StatusHas(absl::StatusCode::kInvalidArgument, HasSubstr("out of order")));
  manifest.tensors[0] = manifest.tensors[1];
  EXPECT_THAT(ParseManifest(SerializeManifest(manifest)), FailsWith(FailureKind::kInvalidRequest));
}

}  // namespace
}  // namespace shardline
