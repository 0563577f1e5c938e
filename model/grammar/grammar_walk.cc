#include "model/grammar/grammar_walk.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "absl/types/span.h"

namespace shardline {
namespace {

constexpr size_t kReadingsMax = 4096;  // Of one place, those left behind on the way included.
constexpr size_t kReadingsKeptMax = 1 << 18;
constexpr size_t kStacksMax = 1 << 17;
constexpr size_t kStepsMax = 1 << 20;
constexpr int64_t kWorkMax = 1 << 22;  // Edges and readings that are looked at.
constexpr size_t kForgetPart = 4;      // Of any limit is used: it is time to forget.

}  // namespace

GrammarWalk::GrammarWalk(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)), work_left_(kWorkMax) {
  Reset();
}

void GrammarWalk::Reset() {
  places_.assign(1, {});
  steps_.assign(grammar_->class_count(), kNowhere);
  readings_.clear();
  place_ids_.clear();
  stacks_.assign(1, {});
  stack_ids_.clear();
  work_ = {{.state = grammar_->start(), .stack = 0}};
  start_ = CloseWork();
}

bool GrammarWalk::AwaitsTrigger(Place place) const {
  const std::span<const Reading> readings = ReadingsOf(place);
  return readings.size() == 1 && grammar_->AwaitsTrigger(readings.front().state);
}

GrammarWalk::Place GrammarWalk::Compute(Place place, uint8_t byte) {
  if (work_left_ < 0) {
    met_limit_ = true;
    return kNowhere;
  }
  work_.clear();
  for (const Reading& reading : ReadingsOf(place)) {
    const std::span<const Grammar::Edge> edges = grammar_->EdgesOf(grammar_->state(reading.state));
    work_left_ -= static_cast<int64_t>(edges.size());
    for (const Grammar::Edge& edge : edges) {
      if (edge.low <= byte && byte <= edge.high) work_.push_back({edge.target, reading.stack});
    }
  }
  const Place next = work_.empty() ? kNowhere : CloseWork();
  steps_[size_t{place} * grammar_->class_count() + grammar_->ClassOf(byte)] = next;
  return next;
}

GrammarWalk::Place GrammarWalk::CloseWork() {
  found_.clear();
  visited_.clear();
  bool can_end = false;
  while (!work_.empty()) {
    const Reading reading = work_.back();
    work_.pop_back();
    if (!visited_.insert(reading).second) continue;
    if (visited_.size() > kReadingsMax) {
      met_limit_ = true;
      return kNowhere;
    }
    Expand(reading, &can_end);
  }
  work_left_ -= static_cast<int64_t>(visited_.size());
  if (found_.empty() && !can_end) return kNowhere;
  std::sort(found_.begin(), found_.end());
  return Intern(can_end);
}

void GrammarWalk::Expand(const Reading& reading, bool* can_end) {
  const Grammar::State& state = grammar_->state(reading.state);
  switch (state.kind) {
    case Grammar::StateKind::kBytes:
      found_.push_back(reading);
      return;
    case Grammar::StateKind::kFork:
      for (const Grammar::StateId target : grammar_->TargetsOf(state)) {
        work_.push_back({target, reading.stack});
      }
      return;
    case Grammar::StateKind::kCall:
      return Call(state, reading.stack);
    case Grammar::StateKind::kFinal: {
      if (reading.stack == 0) {
        *can_end = true;
        return;
      }
      const StackNode& top = stacks_[reading.stack];
      work_.push_back({top.back_to, top.below});
      return;
    }
    case Grammar::StateKind::kDead:
      return;
  }
}

void GrammarWalk::Call(const Grammar::State& call, StackId stack) {
  if (!call.is_tail) {
    if (stacks_[stack].depth >= kGrammarDepthMax) return;
    stack = StackOf(call.end, stack);
    if (stack == 0) return;
  }
  work_.push_back({call.begin, stack});
}

// 0 if there is no room.
GrammarWalk::StackId GrammarWalk::StackOf(Grammar::StateId back_to, StackId below) {
  const auto [it, is_new] = stack_ids_.try_emplace(Reading{back_to, below});
  if (!is_new) return it->second;
  if (stacks_.size() >= kStacksMax) {
    stack_ids_.erase(it);
    met_limit_ = true;
    return 0;
  }
  it->second = static_cast<StackId>(stacks_.size());
  stacks_.push_back({.back_to = back_to, .below = below, .depth = stacks_[below].depth + 1});
  return it->second;
}

GrammarWalk::Place GrammarWalk::Intern(bool can_end) {
  const uint64_t hash = absl::HashOf(absl::MakeConstSpan(found_.data(), found_.size()), can_end);
  absl::InlinedVector<Place, 1>& same_hash = place_ids_[hash];
  for (const Place place : same_hash) {
    const std::span<const Reading> readings = ReadingsOf(place);
    if (places_[place].can_end == can_end &&
        std::equal(readings.begin(), readings.end(), found_.begin(), found_.end())) {
      return place;
    }
  }
  const uint32_t classes = grammar_->class_count();
  if (readings_.size() + found_.size() > kReadingsKeptMax || steps_.size() + classes > kStepsMax) {
    met_limit_ = true;
    return kNowhere;
  }
  const auto place = static_cast<Place>(places_.size());
  same_hash.push_back(place);
  places_.push_back({.begin = static_cast<uint32_t>(readings_.size()),
                     .count = static_cast<uint32_t>(found_.size()),
                     .can_end = can_end});
  readings_.insert(readings_.end(), found_.begin(), found_.end());
  steps_.insert(steps_.end(), classes, kUnknown);
  return place;
}

bool GrammarWalk::Forget(Place* kept) {
  work_left_ = kWorkMax;
  if (readings_.size() < kReadingsKeptMax / kForgetPart &&
      stacks_.size() < kStacksMax / kForgetPart && steps_.size() < kStepsMax / kForgetPart) {
    return false;
  }
  if (*kept == kNowhere) {
    Reset();
    return true;
  }
  const bool can_end = CanEnd(*kept);
  const std::vector<Reading> readings(ReadingsOf(*kept).begin(), ReadingsOf(*kept).end());
  const std::vector<StackNode> stacks = std::move(stacks_);
  // A stack is younger than what is below it.
  std::vector<bool> is_used(stacks.size(), false);
  for (const Reading& reading : readings) is_used[reading.stack] = true;
  for (size_t id = stacks.size(); id-- > 1;) {
    if (is_used[id]) is_used[stacks[id].below] = true;
  }
  Reset();
  std::vector<StackId> new_ids(stacks.size(), 0);
  for (size_t id = 1; id < stacks.size(); ++id) {
    if (is_used[id]) new_ids[id] = StackOf(stacks[id].back_to, new_ids[stacks[id].below]);
  }
  found_.clear();
  for (const Reading& reading : readings) {
    found_.push_back({reading.state, new_ids[reading.stack]});
  }
  std::sort(found_.begin(), found_.end());
  *kept = Intern(can_end);
  return true;
}

}  // namespace shardline
