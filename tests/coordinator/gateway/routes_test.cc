#include "coordinator/gateway/routes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::ElementsAre;

TEST(Routes, ASlashAtTheEndChangesNothing) {
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/models", "/tokenize",
                           "/detokenize", "/apply-template", "/props"}) {
    const RouteMatch match = MatchRoute(path);
    EXPECT_NE(match.endpoint, Endpoint::kUnknown) << path;
    EXPECT_EQ(MatchRoute(std::string(path) + "/").endpoint, match.endpoint) << path;
  }
}

TEST(Routes, AModelsNameMayHoldSlashes) {
  const RouteMatch match = MatchRoute("/v1/models/org/model");
  EXPECT_EQ(match.endpoint, Endpoint::kModel);
  EXPECT_EQ(match.model, "org/model");
  EXPECT_EQ(match.name, "/v1/models/{id}");
}

TEST(Routes, WhatCanBeReadCanBeAskedForItsHeadAndNothingElse) {
  const RouteMatch match = MatchRoute("/v1/models/x");
  EXPECT_THAT(match.methods, ElementsAre("GET", "HEAD"));
  EXPECT_FALSE(match.Allows("DELETE"));
  EXPECT_TRUE(MatchRoute("/v1/chat/completions").Allows("POST"));
  EXPECT_FALSE(MatchRoute("/v1/chat/completions").Allows("GET"));
}

TEST(Routes, EndpointsThatOthersHaveAreToldApartFromNonsense) {
  EXPECT_EQ(MatchRoute("/v1/embeddings").endpoint, Endpoint::kUnsupported);
  EXPECT_EQ(MatchRoute("/v1/audio/speech").endpoint, Endpoint::kUnsupported);
  EXPECT_EQ(MatchRoute("/v1/audiobook").endpoint, Endpoint::kUnknown);
  EXPECT_EQ(MatchRoute("/v1").endpoint, Endpoint::kUnknown);
  EXPECT_EQ(MatchRoute("").endpoint, Endpoint::kUnknown);
  EXPECT_EQ(MatchRoute("/").endpoint, Endpoint::kUnknown);
}

}  // namespace
}  // namespace shardline
