#include "tests/sim/scenario.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/sim/rng.h"

namespace shardline::sim {
namespace {

constexpr int kStagesMax = 4;  // As the model has layers.

constexpr std::array<std::string_view, static_cast<size_t>(FaultKind::kCount)> kFaultNames = {
    "kill",          "vanish",      "pause",
    "slow",          "hang",        "nan",
    "misshape",      "device-lost", "rebirth",
    "cut",           "partition",   "reset",
    "half-reset",    "delay",       "drop-frames",
    "repeat-frames", "reorder",     "misroute",
    "crash",         "zombie",      "pause-coordinator",
    "disk-full",     "disk-error",  "disk-unheard",
    "disk-slow",     "cancel",      "forge",
    "drain"};

using Words = std::map<std::string, int64_t>;

std::string Milliseconds(SimTime time) {
  if (time % kMillisecond == 0) return absl::StrCat(time / kMillisecond);
  return absl::StrCat(static_cast<double>(time) / 1e6);
}

absl::Status Bad(absl::string_view statement, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("scenario: '", statement, "': ", why));
}

// Reads "word name=number ..." into `words`; the word without a number goes to `verb`.
absl::Status ReadWords(absl::string_view statement, std::string& verb, Words& words) {
  for (absl::string_view part : absl::StrSplit(statement, ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (field.second.empty()) {
      if (!verb.empty())
        return Bad(statement, absl::StrCat("two verbs, '", verb, "' and '", field.first, "'"));
      verb = std::string(field.first);
      continue;
    }
    int64_t number = 0;
    uint64_t large = 0;
    if (absl::SimpleAtoi(field.second, &number)) {
    } else if (absl::SimpleAtoi(field.second, &large)) {
      number = static_cast<int64_t>(large);
    } else {
      return Bad(statement, absl::StrCat("'", field.second, "' is not a number"));
    }
    words[std::string(field.first)] = number;
  }
  return absl::OkStatus();
}

int64_t Take(Words& words, const std::string& name, int64_t otherwise) {
  const auto found = words.find(name);
  if (found == words.end()) return otherwise;
  const int64_t value = found->second;
  words.erase(found);
  return value;
}

absl::Status CheckAllTaken(absl::string_view statement, const Words& words) {
  if (words.empty()) return absl::OkStatus();
  return Bad(statement, absl::StrCat("'", words.begin()->first, "' is not known"));
}

}  // namespace

std::string_view FaultKindName(FaultKind kind) { return kFaultNames[static_cast<size_t>(kind)]; }

std::string Scenario::ToString() const {
  const Scenario plain;
  std::string text = absl::StrCat("world seed=", seed, " nodes=", nodes);
  const auto add = [&](const char* name, int64_t value, int64_t usual) {
    if (value != usual) absl::StrAppend(&text, " ", name, "=", value);
  };
  add("stages", stages, plain.stages);
  add("replicas", replicas, plain.replicas);
  add("resume", resume_ms, plain.resume_ms);
  add("capabilities", capabilities ? 1 : 0, 1);
  add("linger", linger ? 1 : 0, 0);
  add("pages", kv_pages, plain.kv_pages);
  add("chunk", chunk_tokens_max, plain.chunk_tokens_max);
  add("ppm", clock_ppm, plain.clock_ppm);
  add("in-flight", rounds_in_flight, plain.rounds_in_flight);
  add("cache", prefix_cache ? 1 : 0, 1);
  add("drafts", drafts ? 1 : 0, 0);
  add("slots", head_slots, plain.head_slots);
  add("queue", head_queue, plain.head_queue);
  add("waiting", waiting_max, plain.waiting_max);
  for (const SessionSpec& session : sessions) {
    absl::StrAppend(&text, "; session at=", session.at, " seed=", session.seed,
                    " prompt=", session.prompt_tokens, " tokens=", session.new_tokens,
                    " budget=", Milliseconds(session.budget));
    add("key", session.key, 0);
    add("poison", session.poison ? 1 : 0, 0);
    add("shared", session.shared_tokens, 0);
    add("tenant", session.tenant, 0);
  }
  for (const Fault& fault : faults) {
    absl::StrAppend(&text, "; at=", fault.at, " ", std::string(FaultKindName(fault.kind)),
                    " node=", fault.node);
    add("other", fault.other, 0);
    add("amount", fault.amount, 0);
    if (fault.length != 0) absl::StrAppend(&text, " for=", Milliseconds(fault.length));
  }
  return text;
}

absl::StatusOr<Scenario> Scenario::Parse(std::string_view text) {
  Scenario scenario;
  const absl::string_view whole(text.data(), text.size());
  for (absl::string_view statement : absl::StrSplit(whole, absl::ByAnyChar(";\n"))) {
    Words words;
    std::string verb;
    if (absl::Status status = ReadWords(statement, verb, words); !status.ok()) return status;
    if (verb.empty() && words.empty()) continue;
    if (verb == "world") {
      scenario.seed = static_cast<uint64_t>(Take(words, "seed", 0));
      scenario.nodes = static_cast<int>(Take(words, "nodes", 3));
      scenario.kv_pages = static_cast<int>(Take(words, "pages", 16));
      scenario.chunk_tokens_max = static_cast<int>(Take(words, "chunk", 8));
      scenario.clock_ppm = static_cast<int>(Take(words, "ppm", 0));
      scenario.stages = static_cast<int>(Take(words, "stages", 3));
      scenario.replicas = static_cast<int>(Take(words, "replicas", 1));
      scenario.resume_ms = static_cast<int>(Take(words, "resume", 1000));
      scenario.capabilities = Take(words, "capabilities", 1) != 0;
      scenario.linger = Take(words, "linger", 0) != 0;
      scenario.rounds_in_flight = static_cast<int>(Take(words, "in-flight", 0));
      scenario.prefix_cache = Take(words, "cache", 1) != 0;
      scenario.drafts = Take(words, "drafts", 0) != 0;
      scenario.head_slots = static_cast<int>(Take(words, "slots", 64));
      scenario.head_queue = static_cast<int>(Take(words, "queue", 256));
      scenario.waiting_max = static_cast<int>(Take(words, "waiting", 256));
      if (scenario.head_slots < 1) return Bad(statement, "slots: at least 1");
      if (scenario.stages < 1 || scenario.stages > kStagesMax || scenario.replicas < 1 ||
          scenario.stages * scenario.replicas > scenario.nodes) {
        return Bad(statement, "stages: 1 to 4, and not more than there are nodes");
      }
      if (scenario.nodes < 1 || scenario.nodes > 8) return Bad(statement, "nodes: 1 to 8");
    } else if (verb == "session") {
      SessionSpec session;
      session.at = static_cast<uint64_t>(Take(words, "at", 0));
      session.seed = static_cast<uint64_t>(Take(words, "seed", 0));
      session.prompt_tokens = static_cast<int>(Take(words, "prompt", 1));
      session.new_tokens = static_cast<int>(Take(words, "tokens", 1));
      session.budget = Take(words, "budget", 5000) * kMillisecond;
      session.key = static_cast<uint32_t>(Take(words, "key", 0));
      session.poison = Take(words, "poison", 0) != 0;
      session.shared_tokens = static_cast<int>(Take(words, "shared", 0));
      session.tenant = static_cast<uint32_t>(Take(words, "tenant", 0));
      scenario.sessions.push_back(session);
    } else {
      const auto name = std::find(kFaultNames.begin(), kFaultNames.end(), verb);
      if (name == kFaultNames.end()) return Bad(statement, "no such fault");
      Fault fault;
      fault.kind = static_cast<FaultKind>(name - kFaultNames.begin());
      fault.at = static_cast<uint64_t>(Take(words, "at", 0));
      fault.node = static_cast<int>(Take(words, "node", 0));
      fault.other = static_cast<int>(Take(words, "other", 0));
      fault.amount = Take(words, "amount", 0);
      fault.length = Take(words, "for", 0) * kMillisecond;
      scenario.faults.push_back(fault);
    }
    if (absl::Status status = CheckAllTaken(statement, words); !status.ok()) return status;
  }
  return scenario;
}

Scenario PlainScenario(uint64_t seed) {
  Scenario scenario;
  scenario.seed = seed;
  scenario.sessions.push_back(
      {.at = 60, .seed = 1 + seed, .prompt_tokens = 5, .new_tokens = 4, .budget = 3 * kSecond});
  return scenario;
}

}  // namespace shardline::sim
