#pragma once

// The Admin service: a shell over a view of the cluster, its sessions and its ledger, and over the
// verbs that change them.

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/id.h"
#include "coordinator/admin/cluster_view.h"
#include "coordinator/store/store.h"
#include "shardline/v1/admin.pb.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace shardline {

// One LoadModel call; never reused.
using LoadStreamId = Id<struct LoadStreamTag>;

// Called on gRPC threads, must not block; answers may come from any thread.
class AdminEvents {
 public:
  virtual ~AdminEvents() = default;

  // Calls `use` once with the state of this moment, or with the reason why there is none.
  virtual void WithView(absl::AnyInvocable<void(const absl::StatusOr<ClusterView>&)> use) = 0;

  // Followed by AdminService::Send and End. The operator may hang up; the load goes on.
  virtual void OnLoadModel(LoadStreamId stream, v1::LoadModelRequest request) = 0;
  // The same for who does not watch. `done` is called once: with the model's name when the load has
  // begun, or with why it has not; what becomes of it the view tells.
  virtual void OnBeginLoad(v1::LoadModelRequest request,
                           absl::AnyInvocable<void(const absl::StatusOr<std::string>&)> done) = 0;
  virtual void OnUnloadModel(const std::string& name,
                             absl::AnyInvocable<void(absl::Status)> done) = 0;
  // Called once. A model that does not fit is an answer; kInvalidRequest, or what is wrong with the
  // file, is none.
  using PreviewReply = absl::AnyInvocable<void(const absl::StatusOr<v1::ModelPreview>&)>;
  virtual void OnPreviewModel(const v1::PreviewModelRequest& request, PreviewReply done) = 0;

  // How the node stands afterwards; called once. NotFound: no such node has joined.
  using NodeReply = absl::AnyInvocable<void(const absl::StatusOr<v1::NodeSummary>&)>;
  virtual void OnCordonNode(const NodeId& node, bool cordon, NodeReply done) = 0;
  virtual void OnDrainNode(const v1::DrainNodeRequest& request, NodeReply done) = 0;
  // As it was listed. FailedPrecondition: it is not lost.
  virtual void OnRemoveNode(const NodeId& node, NodeReply done) = 0;

  // Those that have not ended. `done` is called once.
  virtual void OnListSessions(
      absl::AnyInvocable<void(const absl::StatusOr<v1::SessionList>&)> done) = 0;
  // Calls `done` once, with the outcome that stands. NotFound: there never was such a session.
  virtual void OnCancelSession(
      SessionId session, const std::string& reason,
      absl::AnyInvocable<void(const absl::StatusOr<v1::CancelSessionReply>&)> done) = 0;

  // Calls `use` once, on the store's thread and to be left soon; or with the reason why not.
  virtual void WithStore(absl::AnyInvocable<void(const absl::StatusOr<Store*>&)> use) = 0;
};

class AdminService {
 public:
  // `events` outlives the server that serves this.
  explicit AdminService(AdminEvents* events);
  ~AdminService();

  // Queues `event` for a LoadModel call. One that the operator does not read is skipped: the next
  // says more. Any thread.
  void Send(LoadStreamId stream, v1::LoadModelEvent event);
  void End(LoadStreamId stream, const absl::Status& status);

  grpc::Service* service();

 private:
  class Service;
  class LoadReactor;
  struct Streams;

  const std::shared_ptr<Streams> streams_;
  const std::unique_ptr<Service> service_;
};

}  // namespace shardline
