#include "tests/e2e/chaos_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace shardline::testing {
namespace {

constexpr double kLeaseSeconds = 1.5;

struct FaultWord {
  Fault fault;
  absl::string_view name;
  int weight;  // Among the faults of the cluster; 0: the fault is a kind of client.
};
constexpr FaultWord kFaultWords[] = {
    {Fault::kKill, "kill", 4},         {Fault::kPause, "pause", 3},
    {Fault::kCut, "cut", 2},           {Fault::kOneWay, "one-way", 2},
    {Fault::kLink, "link", 2},         {Fault::kReset, "reset", 2},
    {Fault::kMidBundle, "bundle", 3},  {Fault::kCoordinator, "coordinator", 1},
    {Fault::kCancel, "cancel", 0},     {Fault::kLeave, "leave", 0},
    {Fault::kDeadline, "deadline", 0},
};

// SplitMix64: a few lines, and the same numbers with every library.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  // In [low, high].
  int Between(int low, int high) {
    return low + static_cast<int>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(int percent) { return Between(1, 100) <= percent; }
  absl::Duration Ms(int low, int high) { return absl::Milliseconds(Between(low, high)); }

 private:
  uint64_t state_;
};

// A word nobody says by chance, another one for every index.
std::string Marker(int index) {
  static constexpr absl::string_view kSyllables[] = {"bax", "koq", "zuv", "mij",
                                                     "rew", "tox", "lyz", "vug"};
  return absl::StrCat("Zq", kSyllables[index % 8], kSyllables[index / 8 % 8],
                      kSyllables[index / 64 % 8]);
}

std::string Prompt(int index, const std::string& marker) {
  const std::string word = absl::StrCat("The word of the day is ", marker, ".\n");
  switch (index % 4) {
    case 0:
      return absl::StrCat(word, "The capital of France is");
    case 1:
      return absl::StrCat(word, "Once upon a time there were ", index, " bears, who");
    case 2: {
      std::string prompt = word;
      for (int i = 0; i < 8; ++i) absl::StrAppend(&prompt, "Question ", i, ": what is it?\n");
      return prompt + "Answer:";
    }
    default: {
      std::string prompt = word;
      for (int i = 0; i < 24; ++i) absl::StrAppend(&prompt, "Line ", i, " of a long prompt.\n");
      return prompt;
    }
  }
}

PlannedSession DrawSession(const ChaosOptions& options, Draw& draw) {
  PlannedSession session;
  session.recipe = draw.Between(0, options.recipes - 1);
  session.tokens = static_cast<uint32_t>(draw.Between(8, static_cast<int>(kRecipeTokens)));
  session.keyed = draw.Chance(70);
  session.deadline = options.deadline;
  const int dice = draw.Between(1, 100);
  session.at_token = static_cast<uint32_t>(draw.Between(1, static_cast<int>(session.tokens) - 1));
  if (dice <= 6 && options.faults.contains(Fault::kCancel)) {
    session.client = PlannedSession::Client::kCancels;
  } else if (dice > 6 && dice <= 12 && options.faults.contains(Fault::kLeave)) {
    session.client = PlannedSession::Client::kLeaves;
  } else if (dice > 12 && dice <= 18 && options.faults.contains(Fault::kDeadline)) {
    session.client = PlannedSession::Client::kHurries;
    session.deadline = draw.Ms(50, 1500);
  }
  return session;
}

PlannedFault DrawFault(const ChaosOptions& options, const std::vector<Fault>& bag, Draw& draw) {
  PlannedFault fault;
  fault.fault = bag[static_cast<size_t>(draw.Between(0, static_cast<int>(bag.size()) - 1))];
  fault.node = draw.Between(0, options.nodes - 1);
  fault.after_tokens = draw.Between(10, 200);
  fault.control_path = draw.Chance(50);
  fault.towards_node = draw.Chance(50);
  fault.bytes = draw.Between(1, 8000);
  const auto leases =
      static_cast<size_t>(draw.Between(0, static_cast<int>(options.pause_leases.size()) - 1));
  switch (fault.fault) {
    case Fault::kPause:
      fault.length = absl::Seconds(kLeaseSeconds * options.pause_leases[leases]);
      break;
    case Fault::kKill:
      fault.length = draw.Ms(0, 2500);
      break;
    case Fault::kCoordinator:
      fault.length = draw.Ms(0, 1000);
      break;
    default:
      fault.length = draw.Ms(200, 4000);
      break;
  }
  return fault;
}

}  // namespace

std::vector<Recipe> MakeRecipes(int count) {
  std::vector<Recipe> recipes;
  for (int i = 0; i < count; ++i) {
    Recipe recipe;
    recipe.marker = Marker(i);
    recipe.request.set_text(Prompt(i, recipe.marker));
    recipe.request.set_new_tokens_max(kRecipeTokens);
    recipe.request.set_ignore_eos(true);
    recipe.request.set_want_logits_digest(true);
    if (i / 4 % 2 == 1) {
      recipe.request.mutable_sampling()->set_temperature(0.9F);
      recipe.request.mutable_sampling()->set_top_p(0.95F);
      recipe.request.mutable_sampling()->set_repetition_penalty(1.1F);
      recipe.request.mutable_sampling()->set_seed(static_cast<uint64_t>(i));
    }
    recipes.push_back(std::move(recipe));
  }
  return recipes;
}

absl::string_view FaultName(Fault fault) {
  for (const FaultWord& word : kFaultWords) {
    if (word.fault == fault) return word.name;
  }
  return "?";
}

std::set<Fault> AllFaults() {
  std::set<Fault> all;
  for (const FaultWord& word : kFaultWords) all.insert(word.fault);
  return all;
}

absl::StatusOr<std::set<Fault>> ParseFaults(absl::string_view names) {
  if (names == "all") return AllFaults();
  if (names == "none") return std::set<Fault>();
  std::set<Fault> faults;
  for (const absl::string_view name : absl::StrSplit(names, ',')) {
    const auto* const word = std::find_if(std::begin(kFaultWords), std::end(kFaultWords),
                                          [&](const FaultWord& w) { return w.name == name; });
    if (word == std::end(kFaultWords)) {
      std::vector<absl::string_view> known;
      for (const FaultWord& w : kFaultWords) known.push_back(w.name);
      return absl::InvalidArgumentError(
          absl::StrCat("faults: '", name, "' is none of all, none, ", absl::StrJoin(known, ", ")));
    }
    faults.insert(word->fault);
  }
  return faults;
}

ChaosPlan MakeChaosPlan(const ChaosOptions& options) {
  Draw draw(options.seed);
  ChaosPlan plan;
  for (int i = 0; i < options.sessions; ++i) plan.sessions.push_back(DrawSession(options, draw));
  std::vector<Fault> bag;
  for (const FaultWord& word : kFaultWords) {
    if (options.faults.contains(word.fault)) {
      bag.insert(bag.end(), static_cast<size_t>(word.weight), word.fault);
    }
  }
  if (bag.empty()) return plan;
  for (int i = 0; i < 2 * options.sessions + 10; ++i) {
    plan.faults.push_back(DrawFault(options, bag, draw));
  }
  return plan;
}

}  // namespace shardline::testing
