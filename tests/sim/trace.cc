#include "tests/sim/trace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shardline::sim {

std::string_view TraceKindName(TraceKind kind) {
  static constexpr std::array<std::string_view, static_cast<size_t>(TraceKind::kCount)> kNames = {
      "wake",      "fault",      "heal",       "hello",       "welcome",      "refusal",
      "beat",      "beat-reply", "lost",       "load",        "loaded",       "report",
      "model",     "open",       "open-reply", "fence",       "fence-reply",  "run",
      "run-token", "run-end",    "run-cancel", "link-hello",  "link-welcome", "link-lost",
      "inspect",   "status",     "pulse",      "bundle",      "row-failure",  "job",
      "grant",     "finish",     "store",      "stored",      "generate",     "started",
      "token",     "restarted",  "end",        "client-gone", "stream-end"};
  return kNames[static_cast<size_t>(kind)];
}

void Trace::Add(TraceKind kind, int who, uint64_t a, uint64_t b) {
  const Entry entry = {.time = queue_->now(), .a = a, .b = b, .who = who, .kind = kind};
  const auto mix = [this](uint64_t x) {
    hash_ = (hash_ ^ x) * 0x9E3779B97F4A7C15ULL;
    hash_ ^= hash_ >> 29;
  };
  mix(static_cast<uint64_t>(entry.time));
  mix((static_cast<uint64_t>(kind) << 32) ^ static_cast<uint32_t>(who));
  mix(a);
  mix(b);
  last_[count_ % kKept] = entry;
  ++count_;
  if (keep_all_) all_.push_back(entry);
}

std::string Trace::Line(const Entry& entry) {
  const std::string who = entry.who < 100    ? absl::StrCat("node-", entry.who)
                          : entry.who < 1000 ? absl::StrCat("coordinator-", entry.who - 100)
                                             : absl::StrCat("client-", entry.who - 1000);
  return absl::StrFormat("%12.6f ms  %-14s %-13s %d %d", static_cast<double>(entry.time) / 1e6, who,
                         std::string(TraceKindName(entry.kind)), entry.a, entry.b);
}

std::string Trace::Tail(size_t lines) const {
  std::string text;
  const uint64_t kept = std::min<uint64_t>({count_, kKept, lines});
  for (uint64_t i = count_ - kept; i < count_; ++i) {
    absl::StrAppend(&text, Line(last_[i % kKept]), "\n");
  }
  return text;
}

std::string Trace::All() const {
  std::string text;
  for (const Entry& entry : all_) absl::StrAppend(&text, Line(entry), "\n");
  return text;
}

}  // namespace shardline::sim
