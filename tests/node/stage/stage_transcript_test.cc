// Runs the transcripts of testdata/ against a StageCore and prints its actions. The device of a
// transcript adds 1 to every float.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "node/stage/stage_core.h"
#include "node/stage/step_chain.h"
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
  if (!detail.node.empty()) absl::StrAppend(&out, " [blames ", detail.node.value());
  if (!detail.reporter.empty()) absl::StrAppend(&out, ", says ", detail.reporter.value());
  if (!detail.node.empty()) absl::StrAppend(&out, "]");
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
      bundle_.connection = command.Number("connection");
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
      stage_->OnLinkLost(PeerOf(command.Text("peer")), ReasonOf(command), now_);
    } else if (command.name == "up") {
      stage_->OnLinkUp(PeerOf(command.Text("peer")), now_);
    } else if (command.name == "accept") {
      out = Render(
          stage_->OnLinkAccepted(PeerOf(command.Text("from")), command.Number("connection")));
    } else if (command.name == "inspect") {
      stage_->OnInspect(PeerOf(command.Text("from")), {{.key = KeyOf(command).attempt}}, now_);
    } else if (command.name == "reply") {
      stage_->OnInspectReply(PeerOf(command.Text("from")), {StatusOf(command)}, now_);
    } else if (command.name == "live") {
      out = Live(command);
    } else if (command.name == "floor") {
      stage_->OnFloor(Term(command.Number("term", 1)), SessionId(command.Number("session")));
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
                         .job_tokens_max = 32,
                         .resume_timeout = absl::Milliseconds(
                             static_cast<int64_t>(command.Number("resume_ms", 1000))),
                         .floor = SessionId(command.Number("floor")),
                         .authorise = [](const OpenAttempt& open) {
                           if (open.capability == "signed") return absl::OkStatus();
                           return absl::InvalidArgumentError("the capability is forged");
                         }};
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

  static absl::Status ReasonOf(const Command& command) {
    if (command.Has("silent")) return MakeFailure(FailureKind::kHeartbeatLost, "no beat");
    if (command.Has("died")) return MakeFailure(FailureKind::kWorkerDeath, "lives anew");
    if (command.Has("refused")) return MakeFailure(FailureKind::kIncompatibleRecipe, "no shard");
    return MakeFailure(FailureKind::kStreamReset, "reset");
  }

  // `step` is the one the peer waits for; its chain is the right one but for `other`.
  InspectStatus StatusOf(const Command& command) {
    const StepKey key = KeyOf(command);
    InspectStatus status{.key = key.attempt, .step_next = key.step};
    if (command.Has("closed")) {
      status.failure = MakeFailure(FailureKind::kStaleEpoch, "fenced there");
      return status;
    }
    status.chain = sent_chains_[key];
    if (command.Has("other")) ++status.chain;
    return status;
  }

  std::string Live(const Command& command) {
    std::vector<AttemptKey> keys;
    for (const absl::string_view text :
         absl::StrSplit(command.Text("keys"), ',', absl::SkipEmpty())) {
      unsigned session = 0;
      unsigned epoch = 0;
      EXPECT_EQ(sscanf(std::string(text).c_str(), "%u/%u", &session, &epoch), 2);
      keys.push_back({.session = SessionId(session), .epoch = Epoch(epoch)});
    }
    std::string out;
    for (const AttemptKey& key : stage_->OnLiveAttempts(Term(command.Number("term", 1)),
                                                        command.Number("as_of"), keys, now_)) {
      absl::StrAppend(&out, "ended ", key.session.value(), "/", key.epoch.value(), "\n");
    }
    return out;
  }

  // What an honest sender has sent before the row, as far as this stage has taken it.
  uint64_t ChainOf(const BundleRow& row) {
    if (row.key.step.value() == 0) {
      return ChainStart(row.key.attempt, row.hop, stage_->options().recipe);
    }
    const auto taken = chains_.find({row.key, row.hop});
    return taken != chains_.end() ? taken->second : offered_chains_[{row.key, row.hop}];
  }

  void OfferRow(const BundleRow& row, const std::vector<float>& values) {
    const uint64_t digest = RowDigest(row, values.data(), values.size() * sizeof(float));
    const StepKey next{.attempt = row.key.attempt, .step = row.key.step.Next()};
    offered_chains_[{next, row.hop}] = ChainNext(row.chain, row.key.step, digest);
  }

  void TakeRow(const StepKey& key, uint32_t hop) {
    const StepKey next{.attempt = key.attempt, .step = key.step.Next()};
    chains_[{next, hop}] = offered_chains_[{next, hop}];
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
        .budget = absl::Milliseconds(static_cast<int64_t>(command.Number("budget_ms", 10000))),
        .open_seq = command.Number("seq"),
        .capability = command.Text("capability", "signed")};
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
    const size_t values_before = values_.size();
    for (int32_t i = 0; i < token_count; ++i) {
      if (index_ == 0 && !command.Has("hidden")) bundle_.tokens.push_back(value + i);
      if (index_ > 0 || command.Has("hidden")) {
        for (int32_t j = 0; j < kHiddenDim; ++j) values_.push_back(static_cast<float>(value + i));
      }
    }
    BundleRow& row = bundle_.rows.back();
    row.chain = command.Has("chain") ? command.Number("chain") : ChainOf(row);
    OfferRow(row, {values_.begin() + static_cast<std::ptrdiff_t>(values_before), values_.end()});
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
        TakeRow(slice.key, static_cast<uint32_t>(index_));
      }
      jobs_[job.id] = std::move(job);
    }
    for (const StepComputed& computed : actions.computed) {
      absl::StrAppend(&out, "computed ", Render(computed.key), " in ",
                      absl::FormatDuration(computed.compute_time), "\n");
    }
    for (const Forward& forward : actions.forwards) {
      absl::StrAppend(&out, "forward to ", forward.to.node.value(), "\n", Render(forward.bundle));
      NoteSent(forward.bundle);
    }
    for (const StageBundle& bundle : actions.returns) {
      absl::StrAppend(&out, "return\n", Render(bundle));
      for (const BundleRow& row : bundle.rows) TakeRow(row.key, row.hop);
    }
    for (const InspectAnswer& answer : actions.answers) {
      for (const InspectStatus& status : answer.statuses) {
        const StepKey key{.attempt = status.key, .step = status.step_next};
        absl::StrAppend(&out, "answer ", Render(answer.to), ": ", Render(key), " ",
                        Render(status.failure));
      }
    }
    for (const Refusal& refusal : actions.refusals) {
      absl::StrAppend(&out, "refuse ", Render(refusal.failure.key), " to ", Render(refusal.to),
                      ": ", Render(refusal.failure.status));
    }
    for (const Inspect& inspect : actions.inspects) {
      absl::StrAppend(&out, "inspect ", inspect.to.node.value(), ":");
      for (const InspectRow& row : inspect.rows) {
        absl::StrAppend(&out, " ", row.key.session.value(), "/", row.key.epoch.value());
      }
      out += "\n";
    }
    for (const RouteStage& stage : actions.redials) {
      absl::StrAppend(&out, "redial ", stage.node.value(), "\n");
    }
    return out;
  }

  void NoteSent(const StageBundle& bundle) {
    size_t at = 0;
    for (const BundleRow& row : bundle.rows) {
      const size_t count = static_cast<size_t>(row.token_count) * kHiddenDim;
      const uint64_t digest =
          RowDigest(row, bundle.hidden->floats().data() + at, count * sizeof(float));
      at += count;
      sent_chains_[row.key] = row.chain;
      sent_chains_[{.attempt = row.key.attempt, .step = row.key.step.Next()}] =
          ChainNext(row.chain, row.key.step, digest);
    }
  }

  std::unique_ptr<StageCore> stage_;
  int index_ = 0;
  Instant now_ = Instant::FromOrigin(absl::Seconds(100));
  StageBundle bundle_;
  std::vector<float> values_;
  std::map<uint64_t, ComputeJob> jobs_;
  // Chains before a step: of rows taken here, of rows offered, and of what this stage has sent.
  std::map<std::pair<StepKey, uint32_t>, uint64_t> chains_;
  std::map<std::pair<StepKey, uint32_t>, uint64_t> offered_chains_;
  std::map<StepKey, uint64_t> sent_chains_;
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
TEST(StageTranscript, Resume) { RunStage("resume"); }
TEST(StageTranscript, Ledger) { RunStage("ledger"); }
TEST(StageTranscript, Hostile) { RunStage("hostile"); }

}  // namespace
}  // namespace shardline
