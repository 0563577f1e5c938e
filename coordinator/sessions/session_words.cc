#include "coordinator/sessions/session_words.h"

#include <xxhash.h>

namespace shardline {

std::string_view SessionOutcomeName(SessionOutcome outcome) {
  switch (outcome) {
    case SessionOutcome::kCompleted:
      return "completed";
    case SessionOutcome::kFailed:
      return "failed";
    case SessionOutcome::kCancelled:
      return "cancelled";
    case SessionOutcome::kExpired:
      return "expired";
    case SessionOutcome::kFenced:
      return "fenced";
    case SessionOutcome::kUnverified:
      return "unverified";
  }
  return "unknown";
}

uint64_t TokensDigest(absl::Span<const int32_t> tokens) {
  return XXH3_64bits(tokens.data(), tokens.size() * sizeof(int32_t));
}

}  // namespace shardline
