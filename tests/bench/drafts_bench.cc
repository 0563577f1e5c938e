// What drafts do to the speed of one session: decode tokens/s of one node process with drafts over
// the same without, asked in turn through a coordinator.
//
//   drafts_bench copy MODEL.gguf     a text that the model goes on to repeat
//   drafts_bench chat MODEL.gguf     an ordinary question

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/thread_pool.h"
#include "tests/bench/floors.h"
#include "tests/bench/serve.h"
#include "tests/e2e/cluster.h"

namespace shardline::bench {
namespace {

using testing::Answer;
using testing::Cluster;

constexpr int kPairs = 9;
constexpr uint32_t kTokens = 160;

constexpr char kText[] =
    "The ferry to the northern islands leaves twice a day, at seven in the morning and at four in "
    "the afternoon. Tickets are sold in the red hut beside the pier, and children under twelve "
    "travel for free. In winter the crossing takes two hours; the crew serves hot soup, and dogs "
    "must stay on the lower deck. Whoever misses the last boat may sleep in the old lighthouse, "
    "whose keeper, Marta Olsen, has a stove, eight beds and a piano that nobody can tune.\n";

std::string Prompt(const std::string& kind) {
  if (kind == "copy") return std::string(kText) + kText + kText;
  return "<|im_start|>user\nHow do I keep a small vegetable garden healthy through a dry summer?"
         "<|im_end|>\n<|im_start|>assistant\n";
}

std::unique_ptr<Cluster> Serve(const std::string& model) {
  v1::LoadModelRequest request;
  request.set_context_tokens_max(1024);
  return ServeModel(model, {.nodes = 1, .memory = "4GiB", .threads = UsableCpuCount()},
                    std::move(request));
}

Answer Decode(Cluster& cluster, const std::string& prompt, bool drafts) {
  v1::GenerateRequest request = testing::Greedy(prompt, kTokens);
  request.set_want_logits_digest(false);
  request.set_no_drafts(!drafts);
  Answer answer = cluster.Generate(request);
  SL_CHECK(answer.status.ok(), answer.status.ToString());
  SL_CHECK(answer.tokens.size() == kTokens);
  return answer;
}

double TokensPerSecond(const Answer& answer) {
  return (kTokens - 1) * 1e6 / static_cast<double>(answer.end->timings().decode_us());
}

void Speedup(const std::string& kind, const std::string& model) {
  const std::unique_ptr<Cluster> cluster = Serve(model);
  const std::string prompt = Prompt(kind);
  Decode(*cluster, prompt, true);
  std::vector<double> ratios;
  std::vector<double> rates;
  uint32_t laps = 0;
  uint32_t drafted = 0;
  uint32_t accepted = 0;
  for (int pair = 0; pair < kPairs; ++pair) {
    const Answer plain = Decode(*cluster, prompt, false);
    const Answer drafted_answer = Decode(*cluster, prompt, true);
    SL_CHECK(plain.tokens == drafted_answer.tokens, "drafts changed an answer");
    ratios.push_back(TokensPerSecond(drafted_answer) / TokensPerSecond(plain));
    rates.push_back(TokensPerSecond(plain));
    laps = drafted_answer.end->timings().laps();
    drafted = drafted_answer.end->timings().drafted_tokens();
    accepted = drafted_answer.end->timings().accepted_tokens();
  }
  std::printf(
      "draft_speedup_%s: median %.3f, p10 %.3f, p90 %.3f of %d pairs; %.1f tokens/s without; %u "
      "laps for %u tokens, %u of %u drafts right\n",
      kind.c_str(), Quantile(ratios, 0.5), Quantile(ratios, 0.1), Quantile(ratios, 0.9), kPairs,
      Quantile(rates, 0.5), laps, kTokens - 1, accepted, drafted);
  std::printf("figure draft_speedup_%s %.3f ratio\n", kind.c_str(), Quantile(ratios, 0.5));
}

}  // namespace
}  // namespace shardline::bench

int main(int argc, char** argv) {
  const bool is_known =
      argc == 3 && (std::strcmp(argv[1], "copy") == 0 || std::strcmp(argv[1], "chat") == 0);
  if (!is_known) {
    std::fprintf(stderr, "usage: drafts_bench copy|chat MODEL.gguf\n");
    return 2;
  }
  shardline::bench::Speedup(argv[1], argv[2]);
  return 0;
}
