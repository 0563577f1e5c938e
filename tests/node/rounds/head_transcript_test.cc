// Runs the transcripts of testdata/ against a HeadCore and prints its actions.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "node/rounds/head_core.h"
#include "tests/support/datadriven.h"

namespace shardline {
namespace {

using ::shardline::testing::Command;
using ::shardline::testing::RunTranscript;

std::vector<int32_t> Numbers(const std::string& text) {
  std::vector<int32_t> numbers;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    int32_t number = 0;
    EXPECT_TRUE(absl::SimpleAtoi(part, &number)) << text;
    numbers.push_back(number);
  }
  return numbers;
}

std::string Render(const StepKey& key) {
  return absl::StrCat(key.attempt.session.value(), "/", key.attempt.epoch.value(), "/",
                      key.step.value());
}

std::string Render(const absl::Status& status) {
  if (status.ok()) return "ok\n";
  const FailureDetail detail = FailureDetailOf(status);
  std::string out =
      absl::StrCat(std::string(FailureKindName(detail.kind)), ": ", std::string(status.message()));
  if (!detail.node.empty()) absl::StrAppend(&out, " [blames ", detail.node.value(), "]");
  if (detail.retry_after > absl::ZeroDuration()) {
    absl::StrAppend(&out, " [retry after ", absl::FormatDuration(detail.retry_after), "]");
  }
  return out + "\n";
}

class Transcript {
 public:
  std::string Execute(const Command& command) {
    std::string out;
    if (command.name == "head") return MakeHead(command);
    if (command.name == "run") {
      out = Render(head_->OnRun(RunOf(command), now_));
    } else if (command.name == "return") {
      Return(command.Text("rows"));
    } else if (command.name == "done") {
      Finish(command);
    } else if (command.name == "computed") {
      head_->OnLayersComputed(KeyOf(command),
                              absl::Milliseconds(static_cast<int64_t>(command.Number("ms"))), now_);
    } else if (command.name == "failed") {
      const auto kind = static_cast<FailureKind>(
          command.Number("kind", static_cast<uint64_t>(FailureKind::kStreamReset)));
      head_->OnRowFailure({.key = KeyOf(command), .status = MakeFailure(kind, "it failed")}, now_);
    } else if (command.name == "cancel") {
      head_->OnCancel(KeyOf(command).attempt, now_);
    } else if (command.name == "fence") {
      head_->OnFence(SessionId(command.Number("session", 7)), Epoch(command.Number("epoch", 1)),
                     FailureKind::kNone, now_);
    } else if (command.name == "halt") {
      head_->Halt(MakeFailure(FailureKind::kWorkerDeath, "the node goes away"), now_);
    } else if (command.name == "drain") {
      const auto limit = absl::Milliseconds(static_cast<int64_t>(command.Number("ms")));
      head_->Drain(MakeFailure(FailureKind::kWorkerDeath, "the node had to go"), now_ + limit,
                   now_);
    } else if (command.name == "tick") {
      now_ = now_ + absl::Milliseconds(static_cast<int64_t>(command.Number("ms")));
      head_->OnTick(now_);
    } else if (command.name == "state") {
      const Instant wake = head_->NextWake();
      out = absl::StrCat("running=", head_->attempts_running(), Queued(), " wake=",
                         wake == Instant::InfiniteFuture()
                             ? "never"
                             : absl::StrCat("in ", absl::FormatDuration(wake - now_)),
                         "\n");
    } else {
      ADD_FAILURE() << "line " << command.line << ": no command " << command.name;
    }
    return out + Drain();
  }

 private:
  std::string MakeHead(const Command& command) {
    head_ = std::make_unique<HeadCore>(
        HeadOptions{.node = NodeId("a"),
                    .layers = {.begin = 0, .end = 2},
                    .vocab_size = 100,
                    .hidden_dim = 1,
                    .context_tokens_max = 32,
                    .chunk_tokens_max = static_cast<int32_t>(command.Number("chunk", 4)),
                    .piece_tokens_decoding = static_cast<int32_t>(command.Number("decoding", 4)),
                    .piece_tokens_idle = static_cast<int32_t>(command.Number("idle", 16)),
                    .attempts_max = command.Number("attempts", 4),
                    .queue_max = command.Number("queue", 2),
                    .tenant_queue_max = command.Number("tenant_queue", 2),
                    .tenant_running_max = command.Number("tenant_running", 0)});
    stage_count_ = command.Number("stages", 3);
    rounds_in_flight_ = command.Number("m", 2);
    return "ok";
  }

  std::string Queued() const {
    return absl::StrCat(
        head_->attempts_queued() > 0 ? absl::StrCat(" queued=", head_->attempts_queued()) : "",
        head_->drained() ? " drained" : "");
  }

  static StepKey KeyOf(const Command& command) {
    return {.attempt = {.session = SessionId(command.Number("session", 7)),
                        .epoch = Epoch(command.Number("epoch", 1))},
            .step = StepIndex(command.Number("step"))};
  }

  RunAttempt RunOf(const Command& command) const {
    RunAttempt run{
        .key = KeyOf(command).attempt,
        .prompt = Numbers(command.Text("prompt", "1,2,3")),
        .delivered = Numbers(command.Text("delivered")),
        .new_tokens_max = static_cast<int32_t>(command.Number("new", 8)),
        .stop_tokens = Numbers(command.Text("stop")),
        .budget = absl::Milliseconds(static_cast<int64_t>(command.Number("budget_ms", 60000))),
        .tokens_max = static_cast<int32_t>(command.Number("tokens_max", 32)),
        .tenant = command.Text("tenant"),
        .cached_tokens = static_cast<int32_t>(command.Number("cached")),
        .rounds_in_flight = static_cast<int32_t>(rounds_in_flight_)};
    if (command.Has("top_p")) run.sampling.top_p = static_cast<float>(command.Number("top_p"));
    for (uint64_t i = 0; i < stage_count_; ++i) {
      const auto begin = static_cast<int32_t>(2 * i);
      run.route.push_back({.node = NodeId(std::string(1, static_cast<char>('a' + i))),
                           .layers = {.begin = begin, .end = begin + 2}});
    }
    return run;
  }

  // rows=7/1/0@3,8/1/0@2: session/epoch/step@position.
  void Return(const std::string& rows) {
    StageBundle bundle;
    for (const absl::string_view row : absl::StrSplit(rows, ',')) {
      uint64_t numbers[4] = {};
      const std::string text(row);
      ASSERT_EQ(sscanf(text.c_str(), "%lu/%lu/%lu@%lu", &numbers[0], &numbers[1], &numbers[2],
                       &numbers[3]),
                4);
      bundle.rows.push_back(
          {.key = {{SessionId(numbers[0]), Epoch(numbers[1])}, StepIndex(numbers[2])},
           .position = static_cast<int32_t>(numbers[3]),
           .token_count = 1});
    }
    const std::shared_ptr<Buffer> hidden = Buffer::Allocate(bundle.rows.size() * sizeof(float));
    for (size_t i = 0; i < bundle.rows.size(); ++i) {
      hidden->floats()[i] = static_cast<float>(bundle.rows[i].key.attempt.session.value());
    }
    bundle.hidden = hidden;
    head_->OnReturn(std::move(bundle), now_);
  }

  void Finish(const Command& command) {
    const auto it = jobs_.find(command.Number("job"));
    ASSERT_NE(it, jobs_.end()) << "line " << command.line;
    ComputeDone done{.id = it->first, .compute_time = absl::Milliseconds(2)};
    if (command.Has("lost")) done.status = MakeFailure(FailureKind::kDeviceLost, "gone");
    const std::vector<int32_t> tokens = Numbers(command.Text("tokens"));
    for (size_t i = 0; i < tokens.size(); ++i) {
      SampleResult result{.key = it->second.samples[i].key, .tokens = {{.token = tokens[i]}}};
      if (tokens[i] < 0) {
        result = {.key = result.key,
                  .status = MakeFailure(FailureKind::kNonFinite, "not finite"),
                  .tokens = {}};
      }
      done.samples.push_back(std::move(result));
    }
    jobs_.erase(it);
    head_->OnComputeDone(std::move(done), now_);
  }

  std::string Drain() {
    HeadActions actions = head_->TakeActions();
    std::string out;
    for (ComputeJob& job : actions.jobs) {
      absl::StrAppend(&out, "finish job ", job.id, ":");
      for (const SampleTarget& sample : job.samples) {
        absl::StrAppend(&out, " ", Render(sample.key), " index=", sample.index,
                        " value=", job.hidden->floats()[static_cast<size_t>(sample.row)]);
      }
      out += "\n";
      jobs_[job.id] = std::move(job);
    }
    for (const StageBundle& bundle : actions.steps) {
      out += "bundle\n";
      size_t at = 0;
      for (const BundleRow& row : bundle.rows) {
        const auto first = bundle.tokens.begin() + static_cast<std::ptrdiff_t>(at);
        absl::StrAppend(&out, "  ", Render(row.key), " position=", row.position,
                        " tokens=", absl::StrJoin(first, first + row.token_count, ","),
                        (row.flags & kRowWantsLogits) != 0 ? " wants logits" : "",
                        " budget=", absl::FormatDuration(row.budget), "\n");
        at += static_cast<size_t>(row.token_count);
      }
      EXPECT_EQ(at, bundle.tokens.size());
    }
    for (const TokenOut& token : actions.tokens) {
      absl::StrAppend(&out, "token ", token.key.session.value(), "/", token.key.epoch.value(), " [",
                      token.index, "] = ", token.token.token, "\n");
    }
    for (const AttemptEnd& end : actions.ends) {
      absl::StrAppend(
          &out, "end ", end.key.session.value(), "/", end.key.epoch.value(),
          " reason=", static_cast<int>(end.reason), " tokens=", end.tokens,
          end.reason == FinishReason::kStop ? absl::StrCat(" stop=", end.stop_token) : "",
          " prefill=", absl::FormatDuration(end.timings.prefill),
          " decode=", absl::FormatDuration(end.timings.decode), " laps=", end.timings.laps,
          " lap_time=", absl::FormatDuration(end.timings.lap_time),
          " head_compute=", absl::FormatDuration(end.timings.head_compute), "\n  ",
          Render(end.status));
    }
    return out;
  }

  std::unique_ptr<HeadCore> head_;
  uint64_t stage_count_ = 3;
  uint64_t rounds_in_flight_ = 2;
  Instant now_ = Instant::FromOrigin(absl::Seconds(100));
  std::map<uint64_t, ComputeJob> jobs_;
};

void RunHead(const std::string& name) {
  Transcript transcript;
  RunTranscript("tests/node/rounds/testdata/" + name + ".txt",
                [&](const Command& command) { return transcript.Execute(command); });
}

TEST(HeadTranscript, Run) { RunHead("run"); }
TEST(HeadTranscript, Interleave) { RunHead("interleave"); }
TEST(HeadTranscript, Timeouts) { RunHead("timeouts"); }
TEST(HeadTranscript, Failures) { RunHead("failures"); }
TEST(HeadTranscript, Overtaken) { RunHead("overtaken"); }
TEST(HeadTranscript, Queue) { RunHead("queue"); }

}  // namespace
}  // namespace shardline
