#include "tests/sim/sim_client.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/sim/checker.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/sim_coordinator.h"

namespace shardline::sim {
namespace {

constexpr uint64_t kSharedText = 77;        // The seed of what prompts share.
constexpr SimTime kPatience = 1 * kSecond;  // Past its deadline.

std::vector<int32_t> PromptOf(const SessionSpec& spec) {
  Rng rng(spec.seed);
  Rng shared(kSharedText);
  std::vector<int32_t> prompt;
  for (int i = 0; i < spec.prompt_tokens; ++i) {
    Rng& text = i < spec.shared_tokens ? shared : rng;
    prompt.push_back(static_cast<int32_t>(text.Below(kVocabSize)));
  }
  return prompt;
}

SamplingParams SamplingOf(const SessionSpec& spec) {
  SamplingParams sampling;
  if (spec.seed % 2 == 1) {
    sampling.temperature = 1.0F;
    sampling.seed = spec.seed;
  }
  return sampling;
}

}  // namespace

SimClient::SimClient(SimCluster* cluster, const SessionSpec& spec, int index)
    : SimProcess(cluster->context, kFirstClient + index, 0),
      cluster_(cluster),
      spec_(spec),
      prompt_(PromptOf(spec)),
      sampling_(SamplingOf(spec)),
      reference_(cluster->reference.Generate(prompt_, sampling_, spec.new_tokens)) {
  BeginLife();
}

void SimClient::Ask() {
  if (phase_ != ClientPhase::kWaiting) return;
  phase_ = ClientPhase::kAsking;
  asked_at_ = context().queue.now();
  context().checker->OnAsked(*this);
  Dial();
  // Whatever the other side does, it does not wait for ever.
  After(spec_.budget + kPatience, [this] {
    if (phase_ != ClientPhase::kAsking) return;
    phase_ = ClientPhase::kUnknown;
    if (stream_ != nullptr) cluster_->network.HangUp(stream_, 0);
    stream_ = nullptr;
  });
}

void SimClient::Dial() {
  SimCoordinator* const coordinator = cluster_->coordinator();
  stream_ = cluster_->network.Dial(this, coordinator);
  Stream* const stream = stream_;
  cluster_->network.OnEnd(stream, 0, [this, stream] { OnBroken(stream); });
  const SimTime left = asked_at_ + spec_.budget - context().queue.now();
  GenerateWords words = {.prompt = prompt_,
                         .new_tokens_max = spec_.new_tokens,
                         .sampling = sampling_,
                         .budget = absl::Nanoseconds(std::max(left, kMillisecond)),
                         .tokens_held = tokens_,
                         .digest = spec_.seed * 1000 + static_cast<uint64_t>(spec_.new_tokens),
                         .poisonous = spec_.poison,
                         .tenant = spec_.tenant == 0 ? "t" : "u"};
  if (spec_.key != 0) words.key = absl::StrCat("key-", spec_.key);
  if (attempt_) words.session = attempt_->session;
  cluster_->network.Send(stream, 0, [this, coordinator, stream, words = std::move(words)] {
    coordinator->OnGenerate(this, stream, words);
  });
}

void SimClient::Cancel() {
  if (phase_ != ClientPhase::kAsking) return;
  cancelled_ = true;
  phase_ = ClientPhase::kUnknown;
  if (stream_ != nullptr) cluster_->network.HangUp(stream_, 0);
  stream_ = nullptr;
}

void SimClient::OnBroken(Stream* stream) {
  if (stream_ != stream || phase_ != ClientPhase::kAsking) return;
  stream_ = nullptr;
  context().trace.Add(TraceKind::kStreamEnd, number(), tokens_.size());
  ComeBack();
}

// By its session, or by its key. Who has neither cannot know what became of its request.
void SimClient::ComeBack() {
  const bool in_time = context().queue.now() < asked_at_ + spec_.budget;
  if ((!attempt_ && spec_.key == 0) || !in_time) {
    phase_ = ClientPhase::kUnknown;
    return;
  }
  came_back_ = true;
  After(context().rng.Between(20, 250) * kMillisecond, [this] {
    if (phase_ == ClientPhase::kAsking && stream_ == nullptr) Dial();
  });
}

void SimClient::OnWords(Stream* stream, const ClientWords& words) {
  if (stream_ != stream) return;
  if (words.started) {
    context().trace.Add(TraceKind::kStarted, number(), words.started->session.value(),
                        words.started->epoch.value());
    attempt_ = words.started;
    return;
  }
  if (words.ended && FailureKindOf(words.status) == FailureKind::kOverloaded && attempt_) {
    // The session is just ending, or its coordinator has only begun.
    cluster_->network.HangUp(stream_, 0);
    stream_ = nullptr;
    ComeBack();
    return;
  }
  if (words.ended) {
    context().trace.Add(TraceKind::kEnd, number(), static_cast<uint64_t>(words.status.code()),
                        tokens_.size());
    phase_ = words.status.ok() ? ClientPhase::kCompleted : ClientPhase::kFailed;
    failure_ = words.status;
    context().checker->OnClientEnd(*this, words);
    return;
  }
  context().trace.Add(TraceKind::kToken, number(), words.index, static_cast<uint64_t>(words.token));
  context().checker->OnClientToken(*this, words.index, words.token);
  if (teller_ != 0 && teller_ != words.teller) {
    context().checker->Count(Sometimes::kTokensOfTwoCoordinators);
  }
  teller_ = words.teller;
  tokens_.push_back(words.token);
}

}  // namespace shardline::sim
