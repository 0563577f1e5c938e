#include "coordinator/sessions/admission.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/failure.h"

namespace shardline {

void AdmissionQueue::Line::NoteRefused(uint64_t tokens) {
  refused_tokens = std::min(refused_tokens.value_or(tokens), tokens);
}

bool AdmissionQueue::MustWait(const std::string& line) const {
  return lines_.contains(line) || active() > options_.sessions_max;
}

absl::Status AdmissionQueue::Enter(const Waiter& waiter, Instant now) {
  SL_CHECK(!line_of_.contains(waiter.request));
  if (!waiter.ahead && waiting() >= options_.waiting_max) {
    ++stats_.refused;
    return MakeFailure(
        FailureDetail{.kind = FailureKind::kOverloaded, .retry_after = RetryAfter(now)},
        absl::StrCat(active() - 1, " sessions run and ", waiting(),
                     " wait for room; the queue is full"));
  }
  if (line_of_.empty()) admitted_at_ = now;
  Line& line = lines_[waiter.line];
  if (line.entries.empty()) line.retry_at = now + options_.retry;
  if (waiter.refused) line.NoteRefused(waiter.tokens);
  line.entries.emplace(waiter.request, Entry{.waiter = waiter, .since = now});
  line_of_.emplace(waiter.request, waiter.line);
  ++stats_.entered;
  return absl::OkStatus();
}

void AdmissionQueue::Leave(RequestId request) {
  Line* line = LineOf(request);
  if (line == nullptr) return;
  ++stats_.left;
  Remove(*line, request);
}

std::optional<RequestId> AdmissionQueue::NextTurn(Instant now) {
  if (waiting() == 0 || active() >= options_.sessions_max) return std::nullopt;
  // Once round, from the line behind the last one.
  auto at = lines_.upper_bound(last_line_);
  for (size_t i = 0; i < lines_.size(); ++i, ++at) {
    if (at == lines_.end()) at = lines_.begin();
    Line& line = at->second;
    const Entry* entry = line.trying ? nullptr : Pick(line);
    if (entry == nullptr) continue;
    last_line_ = at->first;
    line.trying = entry->waiter.request;
    line.freed = false;
    line.retry_at = now + options_.retry;
    ++trying_;
    ++stats_.tries;
    return line.trying;
  }
  return std::nullopt;
}

// Null: nobody that may go now can be expected to find room.
const AdmissionQueue::Entry* AdmissionQueue::Pick(const Line& line) const {
  const auto may_fit = [&line](const Entry& entry) {
    return !line.refused_tokens || entry.waiter.tokens < *line.refused_tokens;
  };
  const Entry* best = nullptr;
  std::tuple<bool, int, bool, std::string_view> best_rank;
  std::map<std::string_view, int> places;  // By tenant.
  for (const auto& [request, entry] : line.entries) {
    if (entry.had_turn && entry.passes >= options_.passes_max) {
      return may_fit(entry) ? &entry : nullptr;
    }
    const std::string_view tenant = entry.waiter.tenant;
    const int place = entry.waiter.ahead ? 0 : places[tenant]++;
    if (!may_fit(entry)) continue;
    const std::tuple<bool, int, bool, std::string_view> rank(!entry.waiter.ahead, place,
                                                             tenant <= line.last_tenant, tenant);
    const bool same = best != nullptr && best->waiter.ahead && entry.waiter.ahead;
    if (same || (best != nullptr && rank >= best_rank)) continue;
    best = &entry;
    best_rank = rank;
  }
  return best;
}

bool AdmissionQueue::Tries(RequestId request) const {
  const auto found = line_of_.find(request);
  return found != line_of_.end() && lines_.at(found->second).trying == request;
}

void AdmissionQueue::OnRefused(RequestId request, Instant now) {
  SL_CHECK(Tries(request));
  Line& line = *LineOf(request);
  Entry& entry = line.entries.at(request);
  entry.had_turn = true;
  ++stats_.tries_refused;
  if (!line.freed) line.NoteRefused(entry.waiter.tokens);
  line.retry_at = now + options_.retry;
  line.trying.reset();
  --trying_;
}

void AdmissionQueue::OnAdmitted(RequestId request, Instant now) {
  SL_CHECK(Tries(request));
  Line& line = *LineOf(request);
  const Entry& entry = line.entries.at(request);
  const bool ahead = entry.waiter.ahead;
  stats_.wait_seconds.Observe(absl::ToDoubleSeconds(now - entry.since));
  ++stats_.admitted;
  const absl::Duration took = now - admitted_at_;
  admission_ = admission_ == absl::ZeroDuration() ? took : admission_ * 0.75 + took * 0.25;
  admitted_at_ = now;
  if (!ahead) line.last_tenant = entry.waiter.tenant;
  for (auto& [other, waiter] : line.entries) {
    if (ahead || other == request || !waiter.had_turn) continue;
    ++waiter.passes;
    ++stats_.passes;
  }
  Remove(line, request);
}

void AdmissionQueue::OnFreed(const std::string& line) {
  const auto found = lines_.find(line);
  if (found == lines_.end()) return;
  found->second.freed = true;
  found->second.refused_tokens.reset();
}

void AdmissionQueue::OnAllFreed() {
  for (auto& [name, line] : lines_) {
    line.freed = true;
    line.refused_tokens.reset();
  }
}

void AdmissionQueue::OnTick(Instant now) {
  for (auto& [name, line] : lines_) {
    if (now >= line.retry_at && !line.trying) line.refused_tokens.reset();
  }
}

Instant AdmissionQueue::NextWake() const {
  Instant wake = Instant::InfiniteFuture();
  for (const auto& [name, line] : lines_) {
    if (!line.trying && line.refused_tokens) wake = std::min(wake, line.retry_at);
  }
  return wake;
}

absl::Duration AdmissionQueue::RetryAfter(Instant now) const {
  // Nobody was admitted for longer than usual: then that is how long it takes.
  const absl::Duration each =
      line_of_.empty() ? admission_ : std::max(admission_, now - admitted_at_);
  return std::clamp(each * std::max(waiting(), 1), options_.retry_after, options_.retry_after_max);
}

void AdmissionQueue::Remove(Line& line, RequestId request) {
  if (line.trying == request) {
    line.trying.reset();
    --trying_;
  }
  line.entries.erase(request);
  const auto found = line_of_.find(request);
  if (line.entries.empty()) lines_.erase(found->second);
  line_of_.erase(found);
}

AdmissionQueue::Line* AdmissionQueue::LineOf(RequestId request) {
  const auto found = line_of_.find(request);
  return found == line_of_.end() ? nullptr : &lines_.at(found->second);
}

}  // namespace shardline
