// The one real model that tests use, as it is published.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/manifest.h"
#include "model/model_layout.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_model.h"

namespace shardline {
namespace {

using testing::IsOk;

TEST(RealModel, IsReadWhole) {
  const std::string path = testing::TestModelPath();
  ASSERT_FALSE(path.empty());
  const auto file = GgufFile::Open(path);
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(file->tensors().size(), 272u);
  const auto hp = HyperParameters::FromGguf(*file);
  ASSERT_THAT(hp, IsOk());
  EXPECT_EQ(hp->layer_count, 30);
  EXPECT_EQ(hp->hidden_dim, 576);
  EXPECT_EQ(hp->q_heads, 9);
  EXPECT_EQ(hp->kv_heads, 3);
  EXPECT_EQ(hp->head_dim, 64);
  EXPECT_EQ(hp->vocab_size, 49152);
  EXPECT_EQ(hp->rope.base, 100'000.0f);
  EXPECT_TRUE(hp->tied_head);
  EXPECT_THAT(CheckTensors(*file, *hp), IsOk());

  const auto costs = CostsOf(*file, *hp);
  ASSERT_THAT(costs, IsOk());
  EXPECT_EQ(costs->embedding_bytes, 49152u * 576u / 32u * 34u);
  EXPECT_EQ(costs->kv_bytes_per_token_layer, 2u * 2u * 192u);
}

TEST(RealModel, HasTheRecordedId) {
  const std::string path = testing::TestModelPath();
  ASSERT_FALSE(path.empty());
  const auto file = GgufFile::Open(path);
  ASSERT_THAT(file, IsOk());
  const auto manifest = BuildManifest(*file);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(ModelIdOf(*manifest).value(),
            "sha256:5343eb051e21b7326dca16b7309397995b98975b3117a7879f7ef8310a60c7bb");
}

}  // namespace
}  // namespace shardline
