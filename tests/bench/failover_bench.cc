// How fast a fault is noticed, and how fast a session goes on.
//
//   failover_bench kill MODEL.gguf        kill -9 of a node, until the coordinator counts it as
//   lost failover_bench pause MODEL.gguf       SIGSTOP, likewise failover_bench failover MODEL.gguf
//   kill -9 of a node under a session, until its next token,
//                                         less detection, over prefilling the same tokens

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "base/clock.h"
#include "tests/bench/floors.h"
#include "tests/bench/serve.h"
#include "tests/e2e/cluster.h"

namespace shardline::bench {
namespace {

using testing::Answer;
using testing::Cluster;

constexpr int kRuns = 9;
constexpr int kShards = 3;
constexpr absl::Duration kPatience = absl::Seconds(60);

void Wait(absl::Duration duration) {
  absl::Notification never;
  never.WaitForNotificationWithTimeout(duration);
}

std::unique_ptr<Cluster> Serve(const std::string& model, int replicas) {
  v1::LoadModelRequest request;
  request.set_shards(kShards);
  request.set_replicas(static_cast<uint32_t>(replicas));
  request.set_context_tokens_max(2048);
  return ServeModel(model, {.nodes = kShards * replicas}, std::move(request));
}

void AwaitWhole(Cluster& cluster) {
  SL_CHECK(cluster.Until(kPatience, [](Cluster& c) {
    const v1::ClusterStatus status = c.Status();
    if (status.nodes_ready() != static_cast<uint32_t>(c.node_count())) return false;
    const v1::ShardList shards = c.ListShards();
    const bool loaded = std::all_of(shards.shards().begin(), shards.shards().end(), [](auto& s) {
      return s.state() == v1::SHARD_STATE_LOADED && !s.node_lost();
    });
    return loaded && status.models_size() == 1 && status.models(0).state() == v1::MODEL_STATE_READY;
  }));
}

// When the coordinator first counts `node` as lost, asked every millisecond.
Instant AwaitLost(Cluster& cluster, const std::string& node) {
  const Instant give_up = SystemClock()->Now() + kPatience;
  while (SystemClock()->Now() < give_up) {
    const v1::NodeList nodes = cluster.ListNodes();
    for (const v1::NodeSummary& summary : nodes.nodes()) {
      if (summary.node_id() == node && summary.state() == v1::NODE_STATE_LOST) {
        return SystemClock()->Now();
      }
    }
    Wait(absl::Milliseconds(1));
  }
  SL_CHECK(false, "the coordinator never noticed ", node);
  return give_up;
}

void Print(const char* figure, const std::vector<double>& ms) {
  const double worst = *std::max_element(ms.begin(), ms.end());
  std::printf("%s: median %.1f, max %.1f of %d runs\n", figure, Quantile(ms, 0.5), worst,
              static_cast<int>(ms.size()));
  std::printf("figure %s %.1f ms\n", figure, Quantile(ms, 0.5));
  std::printf("figure %s_max %.1f ms\n", figure, worst);
}

double DetectMs(Cluster& cluster, int run, int signal) {
  const int victim = run % cluster.node_count();
  Wait(absl::Milliseconds(37 * run % 250));  // Another phase of the heartbeat each time.
  const Instant start = SystemClock()->Now();
  cluster.node(victim).Signal(signal);
  const Instant lost = AwaitLost(cluster, cluster.NodeName(victim));
  if (signal == SIGSTOP) {
    cluster.node(victim).Signal(SIGCONT);
  } else {
    cluster.node(victim).Wait(kPatience);
    cluster.StartNode(victim);
  }
  AwaitWhole(cluster);
  return absl::ToDoubleMilliseconds(lost - start);
}

void Detect(const std::string& model, int signal, const char* figure) {
  const std::unique_ptr<Cluster> cluster = Serve(model, 1);
  std::vector<double> ms;
  for (int run = 0; run < kRuns; ++run) ms.push_back(DetectMs(*cluster, run, signal));
  Print(figure, ms);
}

v1::GenerateRequest LongPrompt(uint32_t tokens) {
  std::string prompt;
  for (int i = 0; i < 60; ++i) absl::StrAppend(&prompt, "Line ", i, " of a long prompt.\n");
  v1::GenerateRequest request = testing::Greedy(prompt, tokens);
  request.set_want_logits_digest(false);
  // What is measured is computing the prefix again, one token after the other.
  request.set_no_drafts(true);
  request.set_no_prefix_cache(true);
  return request;
}

struct Failover {
  double detect_ms = 0;
  double go_on_ms = 0;    // Detection to next token.
  double prefill_ms = 0;  // Of prompt and delivered tokens, undisturbed, on the same cluster.
};

Failover FailOver(Cluster& cluster, int run) {
  constexpr int kAt = 40;
  constexpr uint32_t kTokens = 60;
  Instant killed;
  Instant next;
  Instant lost;
  std::thread watch;
  int victim = -1;
  v1::GenerateStarted started;
  const Answer answer = cluster.Generate(
      LongPrompt(kTokens),
      [&](int count) {
        if (count == kAt + 1) next = SystemClock()->Now();
        if (count != kAt) return;
        const std::string node = started.route(run % kShards).node_id();
        victim = node.back() - 'a';
        killed = SystemClock()->Now();
        cluster.node(victim).Signal(SIGKILL);
        watch = std::thread([&, node] { lost = AwaitLost(cluster, node); });
      },
      [&](const v1::GenerateStarted& event) { started = event; });
  watch.join();
  SL_CHECK(answer.status.ok(), answer.status.ToString());
  cluster.node(victim).Wait(kPatience);

  // The same tokens as one prompt: what no failover can do without.
  v1::GenerateRequest again = LongPrompt(1);
  const v1::TokenIds prompt = cluster.Tokenize(again.text());
  *again.mutable_tokens() = prompt;
  for (int i = 0; i < kAt; ++i)
    again.mutable_tokens()->add_ids(answer.tokens[static_cast<size_t>(i)]);
  const Answer prefill = cluster.Generate(again);
  SL_CHECK(prefill.status.ok(), prefill.status.ToString());
  cluster.StartNode(victim);
  AwaitWhole(cluster);
  return {.detect_ms = absl::ToDoubleMilliseconds(lost - killed),
          .go_on_ms = absl::ToDoubleMilliseconds(next - std::max(lost, killed)),
          .prefill_ms = static_cast<double>(prefill.end->timings().prefill_us()) / 1000};
}

void FailoverOverPrefill(const std::string& model) {
  const std::unique_ptr<Cluster> cluster = Serve(model, 2);
  AwaitWhole(*cluster);
  std::vector<double> ratios;
  std::vector<double> go_on;
  std::vector<double> prefill;
  for (int run = 0; run < kRuns; ++run) {
    const Failover failover = FailOver(*cluster, run);
    ratios.push_back(failover.go_on_ms / failover.prefill_ms);
    go_on.push_back(failover.go_on_ms);
    prefill.push_back(failover.prefill_ms);
  }
  std::printf(
      "failover_over_reprefill: median %.3f, max %.3f of %d runs; goes on %.0f ms after "
      "detection, prefill alone %.0f ms\n",
      Quantile(ratios, 0.5), Quantile(ratios, 1.0), kRuns, Quantile(go_on, 0.5),
      Quantile(prefill, 0.5));
  std::printf("figure failover_over_reprefill %.3f ratio\n", Quantile(ratios, 0.5));
}

}  // namespace
}  // namespace shardline::bench

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "kill") == 0) {
    shardline::bench::Detect(argv[2], SIGKILL, "detect_kill_ms");
  } else if (argc == 3 && std::strcmp(argv[1], "pause") == 0) {
    shardline::bench::Detect(argv[2], SIGSTOP, "detect_pause_ms");
  } else if (argc == 3 && std::strcmp(argv[1], "failover") == 0) {
    shardline::bench::FailoverOverPrefill(argv[2]);
  } else {
    std::fprintf(stderr, "usage: failover_bench kill|pause|failover MODEL.gguf\n");
    return 2;
  }
  return 0;
}
