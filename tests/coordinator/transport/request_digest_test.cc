#include "coordinator/generate_request.h"
#include "gtest/gtest.h"
#include "tests/coordinator/transport/test_cluster.h"

namespace shardline::testing {
namespace {

TEST(RequestDigest, IsTheSameForTheSameQuestionAskedAgain) {
  v1::GenerateRequest first = TextRequest("hi");
  first.set_idempotency_key("k");
  first.set_deadline_ms(1000);
  v1::GenerateRequest again = TextRequest("hi");
  again.set_idempotency_key("k");
  again.mutable_reattach()->set_session(5);
  again.mutable_reattach()->add_tokens_held(7);
  again.set_no_prefix_cache(true);
  again.set_no_drafts(true);
  EXPECT_EQ(RequestDigest(first), RequestDigest(again));
}

TEST(RequestDigest, DoesNotDependOnTheOrderOfAMap) {
  v1::GenerateRequest up = TextRequest("hi");
  v1::GenerateRequest down = TextRequest("hi");
  for (int i = 0; i < 50; ++i) {
    (*up.mutable_sampling()->mutable_logit_bias())[i] = 1;
    (*down.mutable_sampling()->mutable_logit_bias())[49 - i] = 1;
  }
  EXPECT_EQ(RequestDigest(up), RequestDigest(down));
}

TEST(RequestDigest, IsAnotherOneForAnotherQuestion) {
  const uint64_t plain = RequestDigest(TextRequest("hi"));
  EXPECT_NE(RequestDigest(TextRequest("ho")), plain);
  v1::GenerateRequest longer = TextRequest("hi");
  longer.set_new_tokens_max(3);
  EXPECT_NE(RequestDigest(longer), plain);
  v1::GenerateRequest seeded = TextRequest("hi");
  seeded.mutable_sampling()->set_seed(1);
  EXPECT_NE(RequestDigest(seeded), plain);
}

}  // namespace
}  // namespace shardline::testing
