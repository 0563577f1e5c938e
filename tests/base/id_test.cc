#include "base/id.h"

#include <type_traits>

#include "absl/container/flat_hash_set.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

static_assert(!std::is_convertible_v<uint64_t, SessionId>);
static_assert(!std::is_convertible_v<SessionId, Epoch>);
static_assert(!std::is_constructible_v<SessionId, Epoch>);
static_assert(!std::is_convertible_v<NodeId, ModelId>);

TEST(IdTest, OrdersAndHashesByValue) {
  EXPECT_LT(Epoch(1), Epoch(1).Next());
  const absl::flat_hash_set<AttemptKey> keys = {
      {SessionId(1), Epoch(1)}, {SessionId(1), Epoch(2)}, {SessionId(1), Epoch(1)}};
  EXPECT_EQ(keys.size(), 2u);
}

}  // namespace
}  // namespace shardline
