#pragma once

// A coordinator that is nothing but what operators see of it: answers from its fields, at once or
// when told, and notes what it was asked.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/admin/admin_service.h"

namespace shardline::testing {

class FakeCluster final : public AdminEvents {
 public:
  FakeCluster() : view_(ReadyView()) {}

  // One model, ready, over two nodes.
  static ClusterView ReadyView() {
    ClusterView view{.term = Term(7), .nodes = {LiveNode("a"), LiveNode("b")}};
    ClusterModel& model = view.models.emplace_back();
    model.facts.name = "tiny";
    model.placed = true;
    model.view.plan.layer_count = 10;
    model.view.state = ModelState::kReady;
    model.view.shards = {Shard("a", {0, 4}), Shard("b", {4, 10})};
    return view;
  }
  static NodeView LiveNode(const std::string& name) {
    NodeView node;
    node.node = NodeId(name);
    node.live = true;
    return node;
  }
  static ShardView Shard(const std::string& node, LayerRange layers) {
    return {.shard = {.node = NodeId(node), .layers = layers, .is_head = layers.begin == 0},
            .state = ShardState::kLoaded};
  }

  void WithView(absl::AnyInvocable<void(const absl::StatusOr<ClusterView>&)> use) override {
    absl::StatusOr<ClusterView> view;
    {
      absl::MutexLock lock(&mu_);
      ++views_asked_;
      if (is_stuck_) {
        stuck_.emplace_back(std::move(use), view_);
        return;
      }
      view = refusal_.ok() ? absl::StatusOr<ClusterView>(view_) : refusal_;
    }
    use(view);
  }
  void OnListSessions(
      absl::AnyInvocable<void(const absl::StatusOr<v1::SessionList>&)> done) override {
    v1::SessionList list;
    {
      absl::MutexLock lock(&mu_);
      list = sessions_;
    }
    done(list);
  }

  void OnLoadModel(LoadStreamId, v1::LoadModelRequest) override {}
  void OnBeginLoad(v1::LoadModelRequest request,
                   absl::AnyInvocable<void(const absl::StatusOr<std::string>&)> done) override {
    Note(absl::StrCat("load ", request.path(), " shards=", request.shards()));
    done(Answer<std::string>(request.name()));
  }
  void OnUnloadModel(const std::string& name,
                     absl::AnyInvocable<void(absl::Status)> done) override {
    Note(absl::StrCat("unload ", name));
    done(answer());
  }
  void OnPreviewModel(const v1::PreviewModelRequest& request, PreviewReply done) override {
    Note(absl::StrCat("preview path=", request.load().path(), " model=", request.model()));
    v1::ModelPreview preview;
    preview.set_reason("a: needs 3 GiB, has 2 GiB");
    done(Answer<v1::ModelPreview>(preview));
  }
  void OnCordonNode(const NodeId& node, bool cordon, NodeReply done) override {
    Note(absl::StrCat(cordon ? "cordon " : "uncordon ", node.value()));
    done(Answer<v1::NodeSummary>(Named(node.value())));
  }
  void OnDrainNode(const v1::DrainNodeRequest& request, NodeReply done) override {
    Note(absl::StrCat("drain ", request.node_id(), " ms=", request.deadline_ms(),
                      " force=", request.force(), " wait=", request.wait()));
    done(Answer<v1::NodeSummary>(Named(request.node_id())));
  }
  void OnRemoveNode(const NodeId& node, NodeReply done) override {
    Note(absl::StrCat("remove ", node.value()));
    done(Answer<v1::NodeSummary>(Named(node.value())));
  }
  void OnCancelSession(
      SessionId session, const std::string& reason,
      absl::AnyInvocable<void(const absl::StatusOr<v1::CancelSessionReply>&)> done) override {
    Note(absl::StrCat("cancel ", session.value(), " ", reason));
    v1::CancelSessionReply reply;
    reply.set_outcome("cancelled");
    done(Answer<v1::CancelSessionReply>(reply));
  }
  void WithStore(absl::AnyInvocable<void(const absl::StatusOr<Store*>&)> use) override {
    use(absl::UnimplementedError("no store here"));
  }

  // The test's side.
  void Change(const std::function<void(ClusterView&, v1::SessionList&)>& change) {
    absl::MutexLock lock(&mu_);
    change(view_, sessions_);
  }
  void Refuse(absl::Status status) {
    absl::MutexLock lock(&mu_);
    refusal_ = std::move(status);
  }
  // Views are answered no more, until Unstick; then with what was when they were asked for.
  void Stick() {
    absl::MutexLock lock(&mu_);
    is_stuck_ = true;
  }
  void Unstick() {
    std::vector<StuckView> stuck;
    {
      absl::MutexLock lock(&mu_);
      is_stuck_ = false;
      stuck = std::exchange(stuck_, {});
    }
    for (auto& [use, view] : stuck) use(view);
  }
  bool AwaitStuck() {
    absl::MutexLock lock(&mu_);
    const auto has = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !stuck_.empty(); };
    return mu_.AwaitWithTimeout(absl::Condition(&has), absl::Seconds(30));
  }
  // What the verbs answer with.
  void AnswerWith(absl::Status status) {
    absl::MutexLock lock(&mu_);
    answer_ = std::move(status);
  }
  int views_asked() const {
    absl::MutexLock lock(&mu_);
    return views_asked_;
  }
  std::vector<std::string> TakeNotes() {
    absl::MutexLock lock(&mu_);
    return std::exchange(notes_, {});
  }

 private:
  using StuckView =
      std::pair<absl::AnyInvocable<void(const absl::StatusOr<ClusterView>&)>, ClusterView>;

  static v1::NodeSummary Named(const std::string& node) {
    v1::NodeSummary summary;
    summary.set_node_id(node);
    return summary;
  }
  void Note(std::string text) {
    absl::MutexLock lock(&mu_);
    notes_.push_back(std::move(text));
  }
  absl::Status answer() const {
    absl::MutexLock lock(&mu_);
    return answer_;
  }
  template <typename T>
  absl::StatusOr<T> Answer(T value) const {
    const absl::Status status = answer();
    if (!status.ok()) return status;
    return value;
  }

  mutable absl::Mutex mu_;
  ClusterView view_ ABSL_GUARDED_BY(mu_);
  v1::SessionList sessions_ ABSL_GUARDED_BY(mu_);
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);
  absl::Status answer_ ABSL_GUARDED_BY(mu_);
  bool is_stuck_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<StuckView> stuck_ ABSL_GUARDED_BY(mu_);
  int views_asked_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::string> notes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace shardline::testing
