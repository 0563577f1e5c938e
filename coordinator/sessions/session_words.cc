#include "coordinator/sessions/session_words.h"

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
  }
  return "unknown";
}

}  // namespace shardline
