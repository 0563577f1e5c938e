#include "tests/node/rounds/local_shard.h"

#include <utility>

#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

constexpr int32_t kTokensMax = 64;
constexpr int32_t kContextTokensMax = 128;

StageOptions StageOptionsOf(const HeadOptions& head, int32_t pages) {
  return {.node = NodeId("a"),
          .incarnation = Incarnation(1),
          .recipe = {.model_id = ModelId("m")},
          .layers = head.layers,
          .layers_total = head.layers.end,
          .is_head = true,
          .hidden_dim = head.hidden_dim,
          .pages_total = pages,
          .context_tokens_max = kContextTokensMax};
}

HeadOptions Complete(HeadOptions options) {
  options.node = NodeId("a");
  options.context_tokens_max = kContextTokensMax;
  options.chunk_tokens_max = 4;
  return options;
}

}  // namespace

LocalShard::LocalShard(HeadOptions options, int32_t pages, Device device)
    : device_(std::move(device)),
      stage_(StageOptionsOf(options, pages)),
      head_(Complete(std::move(options))) {}

LocalShard::Outcome LocalShard::Run(RunAttempt run) {
  run.key = {SessionId(1), Epoch(++epoch_)};
  run.tokens_max = kTokensMax;
  run.budget = absl::Hours(1);
  run.route = {
      {.node = NodeId("a"), .incarnation = Incarnation(1), .layers = stage_.options().layers}};
  const OpenAttempt open{.key = run.key,
                         .term = Term(1),
                         .incarnation = Incarnation(1),
                         .recipe = {.model_id = ModelId("m")},
                         .route = run.route,
                         .tokens_max = kTokensMax,
                         .budget = absl::Hours(1)};
  const AttemptKey key = run.key;
  const auto index = static_cast<uint32_t>(run.delivered.size());
  EXPECT_THAT(stage_.Open(open, now_), IsOk());
  Outcome outcome;
  outcome.end.status = head_.OnRun(std::move(run), now_);
  if (outcome.end.status.ok()) RunUntilOver(&outcome, index);
  stage_.Fence(key.session, key.epoch, Term(1), now_);
  return outcome;
}

void LocalShard::RunUntilOver(Outcome* outcome, uint32_t index) {
  bool is_over = false;
  while (!is_over) {
    HeadActions head = head_.TakeActions();
    StageActions stage = stage_.TakeActions();
    if (head.empty() && stage.empty()) break;
    for (TokenOut& token : head.tokens) {
      EXPECT_EQ(token.index, index++);
      outcome->tokens.push_back(std::move(token.token));
    }
    for (AttemptEnd& end : head.ends) {
      outcome->end = std::move(end);
      is_over = true;
    }
    for (StageBundle& step : head.steps) stage_.OnBundle({}, std::move(step), now_);
    for (const ComputeJob& job : head.jobs) head_.OnComputeDone(device_(job), now_);
    for (StageBundle& bundle : stage.returns) head_.OnReturn(std::move(bundle), now_);
    for (const ComputeJob& job : stage.jobs) stage_.OnComputeDone(device_(job), now_);
  }
  EXPECT_TRUE(is_over);
}

}  // namespace shardline::testing
