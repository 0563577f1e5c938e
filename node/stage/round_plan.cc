#include "node/stage/round_plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace shardline {

std::string RoundPlan::ToString() const {
  int64_t tokens = 0;
  for (const RoundRow& row : rows) tokens += row.token_count;
  const std::string sessions = absl::StrJoin(rows, ", ", [](std::string* out, const RoundRow& row) {
    absl::StrAppend(out, row.attempt.session.value());
  });
  return absl::StrCat("round ", walk, ": ", rows.size(), " rows of ", tokens, " tokens (sessions ",
                      sessions, ")");
}

bool RoundPlan::SameWork(const RoundPlan& other) const {
  return lane == other.lane && rows == other.rows && padded_rows == other.padded_rows &&
         capture_key == other.capture_key && kv_generation == other.kv_generation;
}

}  // namespace shardline
