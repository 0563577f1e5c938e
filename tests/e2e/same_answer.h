#pragma once

// Everything that a client sees of an answer, but the time and the restarts.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {

inline void ExpectSame(const Answer& answer, const Answer& calm) {
  ASSERT_THAT(answer.status, IsOk());
  EXPECT_TRUE(answer.end.has_value());
  EXPECT_THAT(answer.tokens, ::testing::ElementsAreArray(calm.tokens));
  EXPECT_THAT(answer.digests, ::testing::ElementsAreArray(calm.digests));
  EXPECT_THAT(answer.logprobs, ::testing::ElementsAreArray(calm.logprobs));
  EXPECT_EQ(answer.text, calm.text);
}

}  // namespace shardline::testing
