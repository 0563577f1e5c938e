#include "tests/node/rounds/head_rig.h"

#include <algorithm>
#include <utility>

namespace shardline::testing {
namespace {

constexpr int32_t kVocabSize = 100;
constexpr int32_t kToken = 7;

}  // namespace

HeadOptions HeadRig::Complete(HeadOptions options) {
  options.node = NodeId("a");
  options.layers = {.begin = 0, .end = 2};
  options.vocab_size = kVocabSize;
  options.hidden_dim = 1;
  if (options.context_tokens_max == 0) options.context_tokens_max = 100000;
  return options;
}

RunAttempt HeadRig::Run(uint64_t session, int32_t prompt_tokens, int32_t new_tokens) {
  return {.key = KeyOf(session),
          .prompt = std::vector<int32_t>(static_cast<size_t>(prompt_tokens), 1),
          .new_tokens_max = new_tokens,
          .budget = absl::Hours(1),
          .route = {{.node = NodeId("a"), .layers = {.begin = 0, .end = 2}}},
          .tokens_max = 100000};
}

absl::Status HeadRig::Start(RunAttempt run) {
  const absl::Status status = head_.OnRun(std::move(run), now_);
  Collect();
  return status;
}

void HeadRig::ReturnOldest(size_t first, size_t count) {
  StageBundle& bundle = ring_.front();
  count = std::min(count, bundle.rows.size() - first);
  const auto begin = bundle.rows.begin() + static_cast<std::ptrdiff_t>(first);
  StageBundle back;
  back.rows.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
  bundle.rows.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
  if (bundle.rows.empty()) ring_.pop_front();
  for (BundleRow& row : back.rows) {
    row.position += row.token_count - 1;
    row.token_count = 1;
  }
  back.hidden = Buffer::Allocate(back.rows.size() * sizeof(float));
  head_.OnReturn(std::move(back), now_);
  Collect();
}

void HeadRig::FailOldest(size_t index, FailureKind kind) {
  StageBundle& bundle = ring_.front();
  const auto row = bundle.rows.begin() + static_cast<std::ptrdiff_t>(index);
  const StepKey key = row->key;
  bundle.rows.erase(row);
  if (bundle.rows.empty()) ring_.pop_front();
  head_.OnRowFailure({.key = key, .status = MakeFailure(kind, "it failed")}, now_);
  Collect();
}

void HeadRig::FinishJob() {
  const ComputeJob job = std::move(jobs_.front());
  jobs_.pop_front();
  ComputeDone done{.id = job.id};
  for (const SampleTarget& sample : job.samples) {
    done.samples.push_back({.key = sample.key, .tokens = {{.token = kToken}}});
  }
  head_.OnComputeDone(std::move(done), now_);
  Collect();
}

void HeadRig::RunOut() {
  while (!ring_.empty() || !jobs_.empty()) {
    if (!jobs_.empty()) {
      FinishJob();
    } else {
      ReturnOldest();
    }
  }
}

void HeadRig::Collect() {
  HeadActions actions = head_.TakeActions();
  for (ComputeJob& job : actions.jobs) jobs_.push_back(std::move(job));
  for (StageBundle& bundle : actions.steps) {
    sent_.insert(sent_.end(), bundle.rows.begin(), bundle.rows.end());
    ring_.push_back(std::move(bundle));
    ++rounds_sent_;
  }
  progress_.insert(progress_.end(), actions.progress.begin(), actions.progress.end());
  for (TokenOut& token : actions.tokens) tokens_[token.key].push_back(token.token.token);
  for (AttemptEnd& end : actions.ends) ends_[end.key].push_back(end);
}

}  // namespace shardline::testing
