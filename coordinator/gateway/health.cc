#include "coordinator/gateway/health.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/gateway/api_error.h"

namespace shardline {
namespace {

constexpr absl::Duration kRetryAfter = absl::Seconds(2);

struct Check {
  std::string name;
  bool ok = false;
  std::string note;
};

ModelState StateOf(const ClusterModel& model) {
  if (model.placed) return model.view.state;
  return model.failed ? ModelState::kFailed : ModelState::kLoading;
}

// Whoever asks may be anybody: no reason of a model is told, which names nodes and files.
std::vector<Check> ChecksOf(const absl::StatusOr<ClusterView>& view) {
  if (!view.ok()) return {{"loop", false, std::string(view.status().message())}};
  std::vector<Check> checks = {{"loop", true, ""}};
  checks.push_back({"ledger", view->refusal.empty(), view->refusal});
  bool any_ready = false;
  for (const ClusterModel& model : view->models) {
    const bool ready = StateOf(model) == ModelState::kReady;
    any_ready = any_ready || ready;
    checks.push_back({absl::StrCat("model ", model.facts.name), ready,
                      std::string(ModelStateName(StateOf(model)))});
  }
  checks.push_back({"some model ready", any_ready,
                    view->models.empty() ? "no model is loaded" : "none of them can serve"});
  checks.push_back({"not draining", !view->draining, "the coordinator takes no more requests"});
  return checks;
}

bool IsReady(const absl::StatusOr<ClusterView>& view) {
  return view.ok() && view->refusal.empty() && !view->draining &&
         std::any_of(view->models.begin(), view->models.end(), [](const ClusterModel& model) {
           return StateOf(model) == ModelState::kReady;
         });
}

HttpResponse Plain(bool ok, std::string body) {
  HttpResponse response{.status = ok ? 200 : 503, .headers = {}, .body = std::move(body)};
  response.headers.emplace_back("content-type", "text/plain; charset=utf-8");
  response.headers.emplace_back("cache-control", "no-store");
  if (!ok) response.headers.emplace_back("retry-after", "2");
  return response;
}

std::string VerboseText(const std::vector<Check>& checks, bool ready) {
  std::string text;
  for (const Check& check : checks) {
    absl::StrAppend(&text, check.ok ? "[+]" : "[-]", check.name,
                    check.ok ? " ok" : " failed: ", check.ok ? "" : check.note, "\n");
  }
  return absl::StrCat(text, "readyz check ", ready ? "passed" : "failed", "\n");
}

// In the words of the table of errors.
std::string CodeOf(const absl::StatusOr<ClusterView>& view) {
  if (!view.ok()) return "shard_unavailable";
  if (view->draining) return "draining";
  if (view->models.empty()) return "no_plan";
  const bool any_loading =
      std::any_of(view->models.begin(), view->models.end(), [](const ClusterModel& model) {
        const ModelState state = StateOf(model);
        return state == ModelState::kLoading || state == ModelState::kProbing;
      });
  return any_loading ? "model_loading" : "shard_unavailable";
}

std::string WhyNot(const absl::StatusOr<ClusterView>& view) {
  std::string why;
  for (const Check& check : ChecksOf(view)) {
    if (check.ok) continue;
    absl::StrAppend(&why, why.empty() ? "" : "; ", check.name, ": ", check.note);
  }
  return why;
}

}  // namespace

HttpResponse LivezResponse(absl::Duration loop_silent) {
  if (loop_silent <= kLoopSilenceMax) return Plain(true, "ok\n");
  return Plain(
      false, absl::StrCat("the loop has not answered for ",
                          absl::FormatDuration(absl::Trunc(loop_silent, absl::Seconds(1))), "\n"));
}

HttpResponse ReadyzResponse(const absl::StatusOr<ClusterView>& view, bool verbose) {
  const bool ready = IsReady(view);
  if (verbose) return Plain(ready, VerboseText(ChecksOf(view), ready));
  return Plain(ready, ready ? "ok\n" : absl::StrCat(WhyNot(view), "\n"));
}

HttpResponse HealthResponse(const absl::StatusOr<ClusterView>& view) {
  if (IsReady(view)) {
    HttpResponse response{.status = 200, .headers = {}, .body = R"({"status":"ok"})"};
    response.headers.emplace_back("content-type", "application/json");
    response.headers.emplace_back("cache-control", "no-store");
    return response;
  }
  return ErrorResponse(NotServing(CodeOf(view), WhyNot(view), kRetryAfter));
}

}  // namespace shardline
