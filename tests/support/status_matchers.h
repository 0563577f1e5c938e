#pragma once

// Matchers for absl::Status and StatusOr, which Abseil 20220623 does not bring.
//
//   EXPECT_THAT(pool.Reserve(…), IsOk());
//   EXPECT_THAT(ledger.Admit(…), FailsWith(FailureKind::kStaleEpoch));
//   EXPECT_THAT(status, StatusHas(absl::StatusCode::kNotFound, HasSubstr("page")));

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/failure.h"
#include "gmock/gmock.h"

namespace shardline::testing {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

MATCHER_P(FailsWith, kind, "fails with " + std::string(FailureKindName(kind))) {
  *result_listener << StatusOf(arg).ToString();
  return FailureKindOf(StatusOf(arg)) == kind;
}

MATCHER_P2(StatusHas, code, message, "") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         ::testing::ExplainMatchResult(message, std::string(StatusOf(arg).message()),
                                       result_listener);
}

}  // namespace shardline::testing
