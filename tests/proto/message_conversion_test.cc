#include "proto/wire/message_conversion.h"

#include <gtest/gtest.h>

#include <limits>

namespace shardline {
namespace {

TEST(MessageConversion, AShardsCostComesBackAsItWas) {
  const ShardCost cost = {.step = absl::Microseconds(1500),
                          .row = absl::Nanoseconds(250),
                          .finish_step = absl::Milliseconds(3),
                          .finish_row = absl::Microseconds(40)};
  EXPECT_EQ(FromProto(ToProto(cost)), cost);
  EXPECT_EQ(FromProto(v1::ShardCost()), ShardCost());
}

TEST(MessageConversion, AMeasurementThatCannotBeIsNone) {
  for (const double us : {-1.0, std::numeric_limits<double>::quiet_NaN(),
                          std::numeric_limits<double>::infinity(), 1e18}) {
    v1::ShardCost cost;
    cost.set_step_us(us);
    cost.set_finish_row_us(us);
    EXPECT_EQ(FromProto(cost), ShardCost()) << us;
  }
}

}  // namespace
}  // namespace shardline
