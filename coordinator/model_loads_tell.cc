// What is told of models: to lists, to those who watch a load, to the timeline, and before a load.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/log.h"
#include "coordinator/model_loads.h"
#include "coordinator/model_preview.h"

namespace shardline {
namespace {

constexpr int kPreviewsMax = 4;

EventLevel LevelOf(ModelState state) {
  switch (state) {
    case ModelState::kDegraded:
      return EventLevel::kWarning;
    case ModelState::kFailed:
      return EventLevel::kError;
    default:
      return EventLevel::kInfo;
  }
}

}  // namespace

std::vector<ClusterModel> ModelLoads::List() const {
  const std::vector<ModelView> views = routes_.List(world_.clock->Now());
  std::vector<ClusterModel> models;
  for (const auto& [name, entry] : entries_) models.push_back(Describe(name, entry, views));
  return models;
}

std::vector<std::string> ModelLoads::Problems() const {
  std::vector<std::string> problems = routes_.Problems(world_.clock->Now());
  if (!waiting_problem_.empty()) problems.push_back(waiting_problem_);
  return problems;
}

ClusterModel ModelLoads::Describe(const std::string& name, const Entry& entry,
                                  const std::vector<ModelView>& views) const {
  ClusterModel model;
  model.facts.name = name;
  model.note = entry.note;
  if (entry.file != nullptr) {
    model.facts.model_id = entry.file->id;
    model.facts.architecture = std::string(ArchitectureName(entry.file->hyper.architecture));
    model.facts.quantisation = entry.file->quantisation;
    model.facts.bytes = entry.file->bytes;
    model.facts.layers = static_cast<uint32_t>(entry.file->hyper.layer_count);
  }
  if (entry.plan.has_value()) {
    model.facts.context_tokens_max = static_cast<uint32_t>(entry.plan->context_tokens_max);
  }
  for (const ModelView& view : views) {
    if (!entry.in_service || view.plan.model != name) continue;
    model.placed = true;
    model.view = view;
  }
  return model;
}

void ModelLoads::TellWatchers(const std::string& name) {
  auto found = entries_.find(name);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  const ClusterModel model = Describe(name, entry, routes_.List(world_.clock->Now()));
  const std::string state(ModelStateName(model.view.state));
  if (model.placed && entry.note != state) {
    entry.note = state;
    LogInfo("model state", {{"model", name}, {"state", state}, {"reason", model.view.reason}});
    TellState(model);
  }
  if (entry.watchers.empty()) return;
  ClusterView one;
  one.models.push_back(model);
  v1::LoadModelEvent event;
  *event.mutable_model() = ToSummary(model);
  *event.mutable_shards() = ToShardList(one, name).shards();
  event.set_note(entry.note);
  for (const LoadStreamId watcher : entry.watchers) world_.admin->Send(watcher, event);
  const bool ready = model.placed && model.view.state == ModelState::kReady;
  const bool failed = model.placed && model.view.state == ModelState::kFailed;
  if (!ready && !failed) return;
  // Why there is no route is why it failed, with the node that is to blame.
  const absl::Status status =
      ready ? absl::OkStatus() : routes_.WhyNotReady(name, world_.clock->Now());
  for (const LoadStreamId watcher : entry.watchers) world_.admin->End(watcher, status);
  entry.watchers.clear();
}

void ModelLoads::Note(const std::string& name, Entry& entry, const std::string& note) {
  entry.note = note;
  LogInfo("model load", {{"model", name}, {"note", note}});
  TellWatchers(name);
}

void ModelLoads::Tell(EventLevel level, const std::string& kind, const std::string& model,
                      const std::string& text) {
  if (world_.events == nullptr) return;
  world_.events->Add({.level = level,
                      .kind = kind,
                      .text = absl::StrCat(model, ": ", text),
                      .node = {},
                      .model = model});
}

void ModelLoads::TellState(const ClusterModel& model) {
  const std::string state(ModelStateName(model.view.state));
  Tell(LevelOf(model.view.state), absl::StrCat("model_", state), model.facts.name,
       model.view.reason.empty() ? state : absl::StrCat(state, ": ", model.view.reason));
}

void ModelLoads::Preview(const v1::PreviewModelRequest& request, AdminEvents::PreviewReply done) {
  absl::StatusOr<ModelWish> wish = WishOf(request.load());
  if (!wish.ok()) return done(wish.status());
  if (!request.model().empty()) {
    const auto found = entries_.find(request.model());
    if (found == entries_.end() || found->second.file == nullptr) {
      return done(absl::NotFoundError(absl::StrCat("no model ", request.model(), " is loaded")));
    }
    return done(PreviewPlacement(*found->second.file, *wish, UsableNodes(request.model(), {})));
  }
  if (request.load().path().empty()) {
    return done(MakeFailure(FailureKind::kInvalidRequest,
                            "neither a path nor a model in service is named"));
  }
  if (previews_ == kPreviewsMax) {
    return done(MakeFailure({.kind = FailureKind::kOverloaded, .retry_after = absl::Seconds(5)},
                            "other previews are under way"));
  }
  ++previews_;
  reader_.Post([this, path = request.load().path(), wish = *std::move(wish),
                done = std::move(done)]() mutable {
    absl::StatusOr<std::shared_ptr<const ModelFile>> file =
        ReadModelFile(path, CacheOnStoreThread());
    world_.loop->Post(
        [this, wish = std::move(wish), done = std::move(done), file = std::move(file)]() mutable {
          --previews_;
          if (!file.ok()) return done(file.status());
          done(PreviewPlacement(**file, wish, UsableNodes("", {})));
        });
  });
}

}  // namespace shardline
