// Runs the transcripts of testdata/ against a StageCore and prints its actions. The device of a
// transcript adds 1 to every float.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "node/stage/stage_core.h"
#include "tests/support/datadriven.h"

namespace shardline {
namespace {

using ::shardline::testing::Command;
using ::shardline::testing::RunTranscript;

constexpr int32_t kHiddenDim = 2;

std::string Render(const absl::Status& status) {
  if (status.ok()) return "ok\n";
  const FailureDetail detail = FailureDetailOf(status);
  std::string out =
      absl::StrCat(std::string(FailureKindName(detail.kind)), ": ", std::string(status.message()));
  if (!detail.node.empty()) absl::StrAppend(&out, " [blames ", detail.node.value(), "]");
  return out + "\n";
}

std::string Render(const StepKey& key) {
  return absl::StrCat(key.attempt.session.value(), "/", key.attempt.epoch.value(), "/",
                      key.step.value());
}

std::string Render(const StagePeer& peer) {
  return peer.is_own_head() ? "own head" : peer.node.value();
}

std::string Render(const StageBundle& bundle) {
  std::string out;
  size_t at = 0;
  for (const BundleRow& row : bundle.rows) {
    absl::StrAppend(&out, "  ", Render(row.key), " position=", row.position,
                    " tokens=", row.token_count, " hop=", row.hop,
                    " budget=", absl::FormatDuration(row.budget),
                    " value=", bundle.hidden->floats()[at * kHiddenDim], "\n");
    at += static_cast<size_t>(row.token_count);
  }
  return out;
}

class Transcript {
 public:
  std::string Execute(const Command& command) {
    if (command.name == "stage") return MakeStage(command);
    if (command.name == "row") return AddRow(command);
    std::string out;
    if (command.name == "open") {
      const auto reply = stage_->Open(OpenOf(command), now_);
      out = reply.ok() ? absl::StrCat("reserved ", reply->pages_reserved, ", free ",
                                      reply->pages_free, "\n")
                       : Render(reply.status());
    } else if (command.name == "fence") {
      const FenceReply reply =
          stage_->Fence(SessionId(command.Number("session")), Epoch(command.Number("epoch")),
                        Term(command.Number("term", 1)), now_);
      out = absl::StrCat("released ", reply.pages_released, " pages, ", reply.buffers_released,
                         " buffers", reply.pages_pinned ? ", pages pinned" : "", "\n");
    } else if (command.name == "send") {
      const StagePeer from = PeerOf(command.Text("from"));
      if (!from.is_own_head()) {
        const std::shared_ptr<Buffer> hidden = Buffer::Allocate(values_.size() * sizeof(float));
        std::copy(values_.begin(), values_.end(), hidden->floats().begin());
        bundle_.hidden = hidden;
      }
      values_.clear();
      stage_->OnBundle(from, std::exchange(bundle_, {}), now_);
    } else if (command.name == "done") {
      FinishJob(command);
    } else if (command.name == "failed") {
      stage_->OnRowFailure(
          PeerOf(command.Text("from")),
          {.key = KeyOf(command),
           .status =
               MakeFailure({.kind = FailureKind::kNonFinite, .node = NodeId("c")}, "not finite")},
          now_);
    } else if (command.name == "lost") {
      stage_->OnLinkLost(PeerOf(command.Text("peer")), now_);
    } else if (command.name == "tick") {
      now_ = now_ + absl::Milliseconds(static_cast<int64_t>(command.Number("ms")));
      stage_->OnTick(now_);
    } else if (command.name == "state") {
      const Instant wake = stage_->NextWake();
      out = absl::StrCat("attempts=", stage_->attempts_open(), " free=", stage_->kv().pages_free(),
                         " waiting=", stage_->rows_waiting(), " wake=",
                         wake == Instant::InfiniteFuture()
                             ? "never"
                             : absl::StrCat("in ", absl::FormatDuration(wake - now_)),
                         "\n");
    } else {
      ADD_FAILURE() << "line " << command.line << ": no command " << command.name;
    }
    stage_->kv().CheckConservation();
    return out + Drain();
  }

 private:
  std::string MakeStage(const Command& command) {
    const std::string node = command.Text("node", "b");
    const int index = node[0] - 'a';
    StageOptions options{.node = NodeId(node),
                         .incarnation = Incarnation(1),
                         .recipe = RecipeOf(command),
                         .layers = {.begin = 2 * index, .end = 2 * index + 2},
                         .layers_total = 6,
                         .is_head = index == 0,
                         .hidden_dim = kHiddenDim,
                         .pages_total = static_cast<int32_t>(command.Number("pages", 8)),
                         .context_tokens_max = 128,
                         .attempts_max = command.Number("attempts_max", 8),
                         .sessions_max = command.Number("sessions_max", 16),
                         .bundle_rows_max = 4,
                         .bundle_tokens_max = 64,
                         .job_tokens_max = 32};
    stage_ = std::make_unique<StageCore>(options);
    index_ = index;
    return "ok";
  }

  static Recipe RecipeOf(const Command& command) {
    return {.model_id = ModelId(command.Text("model", "m1")),
            .numerics_id = NumericsId(command.Text("numerics", "n1")),
            .plan_epoch = PlanEpoch(command.Number("plan", 1))};
  }

  static StagePeer PeerOf(const std::string& name) {
    if (name == "head") return {};
    return {.node = NodeId(name), .incarnation = Incarnation(1)};
  }

  static StepKey KeyOf(const Command& command) {
    return {.attempt = {.session = SessionId(command.Number("session", 7)),
                        .epoch = Epoch(command.Number("epoch", 1))},
            .step = StepIndex(command.Number("step"))};
  }

  OpenAttempt OpenOf(const Command& command) const {
    OpenAttempt open{
        .key = KeyOf(command).attempt,
        .term = Term(command.Number("term", 1)),
        .incarnation = Incarnation(command.Number("incarnation", 1)),
        .recipe = RecipeOf(command),
        .stage_index =
            static_cast<uint32_t>(command.Number("index", static_cast<uint64_t>(index_))),
        .tokens_max = static_cast<int32_t>(command.Number("tokens", 32)),
        .budget = absl::Milliseconds(static_cast<int64_t>(command.Number("budget_ms", 10000)))};
    const std::string text = command.Text("route", "a:0-2,b:2-4,c:4-6");
    for (const absl::string_view stage : absl::StrSplit(text, ',', absl::SkipEmpty())) {
      int begin = 0;
      int end = 0;
      const std::string layers(stage.substr(2));
      EXPECT_EQ(sscanf(layers.c_str(), "%d-%d", &begin, &end), 2);
      open.route.push_back({.node = NodeId(std::string(stage.substr(0, 1))),
                            .incarnation = Incarnation(1),
                            .layers = {.begin = begin, .end = end}});
    }
    return open;
  }

  std::string AddRow(const Command& command) {
    const auto token_count = static_cast<int32_t>(command.Number("tokens", 1));
    bundle_.rows.push_back(
        {.key = KeyOf(command),
         .position = static_cast<int32_t>(command.Number("position")),
         .token_count = token_count,
         .hop = static_cast<uint32_t>(command.Number("hop", static_cast<uint64_t>(index_))),
         .budget = absl::Milliseconds(static_cast<int64_t>(command.Number("budget_ms", 5000)))});
    const auto value = static_cast<int32_t>(command.Number("value", 10));
    for (int32_t i = 0; i < token_count; ++i) {
      if (index_ == 0 && !command.Has("hidden")) bundle_.tokens.push_back(value + i);
      if (index_ > 0 || command.Has("hidden")) {
        for (int32_t j = 0; j < kHiddenDim; ++j) values_.push_back(static_cast<float>(value + i));
      }
    }
    return "";
  }

  void FinishJob(const Command& command) {
    const auto it = jobs_.find(command.Number("job"));
    ASSERT_NE(it, jobs_.end()) << "line " << command.line;
    ComputeDone done{.id = it->first, .compute_time = absl::Milliseconds(3)};
    if (command.Has("lost")) {
      done.status = MakeFailure(FailureKind::kDeviceLost, "the device fell off the bus");
    }
    size_t token_count = 0;
    for (const JobSlice& slice : it->second.slices) {
      token_count += static_cast<size_t>(slice.token_count);
      const bool bad =
          command.Has("nan") && slice.key.attempt.session.value() == command.Number("nan");
      done.slice_status.push_back(
          bad ? MakeFailure(FailureKind::kNonFinite, "layer 3 is not finite") : absl::OkStatus());
    }
    const std::shared_ptr<Buffer> hidden =
        Buffer::Allocate(token_count * kHiddenDim * sizeof(float));
    for (size_t i = 0; i < hidden->floats().size(); ++i) {
      hidden->floats()[i] = 1.0F + (it->second.hidden == nullptr
                                        ? static_cast<float>(it->second.tokens[i / kHiddenDim])
                                        : it->second.hidden->floats()[i]);
    }
    done.hidden = hidden;
    jobs_.erase(it);
    stage_->OnComputeDone(std::move(done), now_);
  }

  std::string Drain() {
    StageActions actions = stage_->TakeActions();
    std::string out;
    for (ComputeJob& job : actions.jobs) {
      absl::StrAppend(&out, "job ", job.id, "\n");
      for (const JobSlice& slice : job.slices) {
        absl::StrAppend(&out, "  ", Render(slice.key), " position=", slice.position,
                        " tokens=", slice.token_count, " pages=", slice.pages.size(), "\n");
      }
      jobs_[job.id] = std::move(job);
    }
    for (const StepComputed& computed : actions.computed) {
      absl::StrAppend(&out, "computed ", Render(computed.key), " in ",
                      absl::FormatDuration(computed.compute_time), "\n");
    }
    for (const Forward& forward : actions.forwards) {
      absl::StrAppend(&out, "forward to ", forward.to.node.value(), "\n", Render(forward.bundle));
    }
    for (const StageBundle& bundle : actions.returns) {
      absl::StrAppend(&out, "return\n", Render(bundle));
    }
    for (const Refusal& refusal : actions.refusals) {
      absl::StrAppend(&out, "refuse ", Render(refusal.failure.key), " to ", Render(refusal.to),
                      ": ", Render(refusal.failure.status));
    }
    return out;
  }

  std::unique_ptr<StageCore> stage_;
  int index_ = 0;
  Instant now_ = Instant::FromOrigin(absl::Seconds(100));
  StageBundle bundle_;
  std::vector<float> values_;
  std::map<uint64_t, ComputeJob> jobs_;
};

void RunStage(const std::string& name) {
  Transcript transcript;
  RunTranscript("tests/node/stage/testdata/" + name + ".txt",
                [&](const Command& command) { return transcript.Execute(command); });
}

TEST(StageTranscript, Open) { RunStage("open"); }
TEST(StageTranscript, Fence) { RunStage("fence"); }
TEST(StageTranscript, Steps) { RunStage("steps"); }
TEST(StageTranscript, Failures) { RunStage("failures"); }
TEST(StageTranscript, Head) { RunStage("head"); }
TEST(StageTranscript, Hostile) { RunStage("hostile"); }

}  // namespace
}  // namespace shardline
