// Cached prefixes at a stage: which names are taken for true, and when a page gets its own.
//
// A page is named only with the commit of a step, and only if all of its rows are committed: steps
// in doubt, in flight or failed name nothing.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/planted_bug.h"
#include "node/stage/stage_core.h"

namespace shardline {

absl::Status StageCore::CheckPrefix(const OpenAttempt& open) const {
  const auto refuse = [&](const std::string& message) {
    return MakeFailure(
        FailureDetail{.kind = FailureKind::kInvalidRequest,
                      .session = open.key.session,
                      .epoch = open.key.epoch,
                      .node = options_.node,
                      .layers = options_.layers},
        absl::StrCat("open session ", open.key.session.value(), " epoch ", open.key.epoch.value(),
                     " at node ", options_.node.value(), ": ", message));
  };
  const std::vector<PrefixKey>& keys = open.prefix_keys;
  const int32_t keys_max = PrefixPagesToFind(open.tokens_max, kPageTokens);
  if (keys.size() > static_cast<size_t>(keys_max)) {
    return refuse(absl::StrCat(keys.size(), " prefix keys for ", open.tokens_max,
                               " tokens, at most ", keys_max));
  }
  if (!keys.empty() && open.prefix_root.empty()) return refuse("prefix keys without a root");
  const auto nameless =
      std::find_if(keys.begin(), keys.end(), [](const PrefixKey& key) { return key.empty(); });
  if (nameless != keys.end()) {
    return refuse(absl::StrCat("prefix key ", nameless - keys.begin(), " is empty"));
  }
  return absl::OkStatus();
}

absl::Status StageCore::CheckPrefixKey(const BundleRow& row) const {
  if (row.prefix_key.empty() || row.position >= kPageTokens) return absl::OkStatus();
  return Blame(FailureKind::kMalformedBundle, row.key,
               absl::StrCat("names a page, and position ", row.position, " is in the first"));
}

void StageCore::PublishPages(const Attempt& attempt, const BundleRow& row) {
  const AttemptKey& key = attempt.open.key;
  const std::vector<PrefixKey>& names = attempt.open.prefix_keys;
  const int32_t length =
      Planted(PlantedBug::kCachedUncomputed) ? kv_.TakenLengthOf(key) : kv_.LengthOf(key);
  const int32_t named_max = std::min(static_cast<int32_t>(names.size()), length / kPageTokens);
  for (int32_t page = kv_.NamedPagesOf(key); page < named_max; ++page) {
    kv_.Publish(key, page, names[static_cast<size_t>(page)]);
  }
  if (row.prefix_key.empty() || attempt.open.prefix_root.empty()) return;
  kv_.Publish(key, row.position / kPageTokens - 1, row.prefix_key);
}

}  // namespace shardline
