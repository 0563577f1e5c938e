#pragma once

// shardctl's calls to the coordinator, blocking, with statuses of ours.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "shardline/v1/admin.pb.h"
#include "shardline/v1/inference.pb.h"

namespace shardline {

// One thread at a time. A timeout of infinity waits for ever.
class CtlClient {
 public:
  explicit CtlClient(const std::string& endpoint);
  ~CtlClient();

  absl::StatusOr<v1::ClusterStatus> GetStatus(absl::Duration timeout);
  absl::StatusOr<v1::NodeList> ListNodes(absl::Duration timeout);
  absl::StatusOr<v1::ModelList> ListModels(absl::Duration timeout);
  absl::StatusOr<v1::ShardList> ListShards(const std::string& model, absl::Duration timeout);
  absl::Status UnloadModel(const std::string& name, absl::Duration timeout);
  absl::Status LoadModel(const v1::LoadModelRequest& request, absl::Duration timeout,
                         const std::function<void(const v1::LoadModelEvent&)>& on_event);
  absl::Status Generate(const v1::GenerateRequest& request, absl::Duration timeout,
                        const std::function<void(const v1::GenerateEvent&)>& on_event);
  absl::StatusOr<v1::NodeSummary> CordonNode(const std::string& node, bool cordon,
                                             absl::Duration timeout);
  absl::StatusOr<v1::NodeSummary> RemoveNode(const std::string& node, absl::Duration timeout);
  absl::StatusOr<v1::ModelPreview> PreviewModel(const v1::LoadModelRequest& load,
                                                absl::Duration timeout);
  absl::StatusOr<v1::NodeSummary> DrainNode(const v1::DrainNodeRequest& request,
                                            absl::Duration timeout);
  absl::StatusOr<v1::SessionList> ListSessions(absl::Duration timeout);
  absl::StatusOr<v1::CancelSessionReply> CancelSession(const v1::CancelSessionRequest& request,
                                                       absl::Duration timeout);
  absl::StatusOr<v1::RecordList> ListRecords(const v1::ListRecordsRequest& request,
                                             absl::Duration timeout);
  absl::Status ExportRecords(const v1::ListRecordsRequest& request, absl::Duration timeout,
                             const std::function<void(const v1::LedgerRecord&)>& on_record);
  absl::StatusOr<v1::LedgerVerdict> VerifyLedger(absl::Duration timeout);
  // Whether the coordinator says that it serves (grpc.health.v1).
  absl::StatusOr<bool> IsServing(absl::Duration timeout);

 private:
  struct Stubs;
  const std::unique_ptr<Stubs> stubs_;
};

}  // namespace shardline
