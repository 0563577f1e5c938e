#include "coordinator/admin/admin_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "coordinator/admin/ledger_export.h"
#include "coordinator/admin/ledger_view.h"
#include "coordinator/transport/stream_outbox.h"
#include "proto/wire/failure_conversion.h"
#include "shardline/v1/admin.grpc.pb.h"

namespace shardline {
namespace {

constexpr size_t kEventsQueuedMax = 64;
constexpr uint64_t kRecordsListed = 100;
constexpr size_t kReasonBytesMax = 200;  // It goes into the record.

// Answers a unary call with what `convert` makes of the view.
template <typename Reply, typename Convert>
grpc::ServerUnaryReactor* AnswerWithView(AdminEvents* events, grpc::CallbackServerContext* context,
                                         Reply* reply, Convert convert) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  events->WithView([reactor, reply, convert](const absl::StatusOr<ClusterView>& view) {
    if (view.ok()) *reply = convert(*view);
    reactor->Finish(ToGrpcStatus(view.status()));
  });
  return reactor;
}

AdminEvents::NodeReply AnswerInto(v1::NodeSummary* reply, grpc::ServerUnaryReactor* reactor) {
  return [reply, reactor](const absl::StatusOr<v1::NodeSummary>& node) {
    if (node.ok()) *reply = *node;
    reactor->Finish(ToGrpcStatus(node.status()));
  };
}

// Answers a unary call with what `answer` finds in the store.
template <typename Reply, typename Answer>
grpc::ServerUnaryReactor* AnswerFromStore(AdminEvents* events, grpc::CallbackServerContext* context,
                                          Reply* reply, Answer answer) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  events->WithStore([reactor, reply, answer](const absl::StatusOr<Store*>& store) {
    absl::StatusOr<Reply> found = store.ok() ? answer(**store) : store.status();
    if (found.ok()) *reply = *std::move(found);
    reactor->Finish(ToGrpcStatus(found.status()));
  });
  return reactor;
}

absl::StatusOr<v1::RecordList> RecordsOf(Store& store, const v1::ListRecordsRequest& request) {
  SL_ASSIGN_OR_RETURN(LedgerQuery query, FromProto(request, kRecordsListed));
  query.limit = std::min(query.limit, kRecordsListedMax);
  SL_ASSIGN_OR_RETURN(const std::vector<LedgerEntry> entries, store.ListRecords(query));
  v1::RecordList reply;
  for (const LedgerEntry& entry : entries) *reply.add_records() = ToProto(entry);
  SL_ASSIGN_OR_RETURN(const uint64_t total, store.CountRecords(query));
  reply.set_total(total);
  return reply;
}

}  // namespace

// The LoadModel calls that are up.
struct AdminService::Streams {
  using Outbox = StreamOutbox<LoadReactor, v1::LoadModelEvent>;

  explicit Streams(AdminEvents* sink) : events(sink) {}

  std::shared_ptr<Outbox> Find(LoadStreamId stream) ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    auto it = outboxes.find(stream);
    return it == outboxes.end() ? nullptr : it->second;
  }

  AdminEvents* const events;

  absl::Mutex mu;
  LoadStreamId last ABSL_GUARDED_BY(mu);
  absl::flat_hash_map<LoadStreamId, std::shared_ptr<Outbox>> outboxes ABSL_GUARDED_BY(mu);
};

class AdminService::LoadReactor final : public grpc::ServerWriteReactor<v1::LoadModelEvent> {
 public:
  LoadReactor(std::shared_ptr<Streams> streams, const v1::LoadModelRequest& request)
      : streams_(std::move(streams)),
        outbox_(std::make_shared<Streams::Outbox>(this, kEventsQueuedMax)),
        id_(Register()) {
    streams_->events->OnLoadModel(id_, request);
  }

  void OnWriteDone(bool ok) override { outbox_->OnWriteDone(ok); }

  void OnCancel() override {
    outbox_->EndNow(grpc::Status(grpc::StatusCode::CANCELLED, "the operator hung up"));
  }

  void OnDone() override {
    {
      absl::MutexLock lock(&streams_->mu);
      streams_->outboxes.erase(id_);
    }
    delete this;
  }

 private:
  LoadStreamId Register() {
    absl::MutexLock lock(&streams_->mu);
    streams_->last = streams_->last.Next();
    streams_->outboxes.emplace(streams_->last, outbox_);
    return streams_->last;
  }

  const std::shared_ptr<Streams> streams_;
  const std::shared_ptr<Streams::Outbox> outbox_;
  const LoadStreamId id_;
};

class AdminService::Service final : public v1::Admin::CallbackService {
 public:
  explicit Service(std::shared_ptr<Streams> streams) : streams_(std::move(streams)) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest*,
                                      v1::ClusterStatus* reply) override {
    return AnswerWithView(streams_->events, context, reply, ToStatus);
  }

  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context,
                                      const v1::ListNodesRequest*, v1::NodeList* reply) override {
    return AnswerWithView(streams_->events, context, reply, ToNodeList);
  }

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest*,
                                       v1::ModelList* reply) override {
    return AnswerWithView(streams_->events, context, reply, ToModelList);
  }

  grpc::ServerUnaryReactor* ListShards(grpc::CallbackServerContext* context,
                                       const v1::ListShardsRequest* request,
                                       v1::ShardList* reply) override {
    return AnswerWithView(
        streams_->events, context, reply,
        [model = request->model()](const ClusterView& view) { return ToShardList(view, model); });
  }

  grpc::ServerWriteReactor<v1::LoadModelEvent>* LoadModel(
      grpc::CallbackServerContext*, const v1::LoadModelRequest* request) override {
    return new LoadReactor(streams_, *request);  // Deletes itself in OnDone.
  }

  grpc::ServerUnaryReactor* UnloadModel(grpc::CallbackServerContext* context,
                                        const v1::UnloadModelRequest* request,
                                        v1::UnloadModelReply*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    streams_->events->OnUnloadModel(
        request->name(), [reactor](absl::Status status) { reactor->Finish(ToGrpcStatus(status)); });
    return reactor;
  }

  grpc::ServerUnaryReactor* PreviewModel(grpc::CallbackServerContext* context,
                                         const v1::PreviewModelRequest* request,
                                         v1::ModelPreview* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    streams_->events->OnPreviewModel(
        *request, [reply, reactor](const absl::StatusOr<v1::ModelPreview>& preview) {
          if (preview.ok()) *reply = *preview;
          reactor->Finish(ToGrpcStatus(preview.status()));
        });
    return reactor;
  }

  grpc::ServerUnaryReactor* CordonNode(grpc::CallbackServerContext* context,
                                       const v1::CordonNodeRequest* request,
                                       v1::NodeSummary* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    streams_->events->OnCordonNode(NodeId(request->node_id()), true, AnswerInto(reply, reactor));
    return reactor;
  }

  grpc::ServerUnaryReactor* UncordonNode(grpc::CallbackServerContext* context,
                                         const v1::UncordonNodeRequest* request,
                                         v1::NodeSummary* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    streams_->events->OnCordonNode(NodeId(request->node_id()), false, AnswerInto(reply, reactor));
    return reactor;
  }

  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const v1::DrainNodeRequest* request,
                                      v1::NodeSummary* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    streams_->events->OnDrainNode(*request, AnswerInto(reply, reactor));
    return reactor;
  }

  grpc::ServerUnaryReactor* RemoveNode(grpc::CallbackServerContext* context,
                                       const v1::RemoveNodeRequest* request,
                                       v1::NodeSummary* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    streams_->events->OnRemoveNode(NodeId(request->node_id()), AnswerInto(reply, reactor));
    return reactor;
  }

  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest*,
                                         v1::SessionList* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    streams_->events->OnListSessions([reactor, reply](const absl::StatusOr<v1::SessionList>& list) {
      if (list.ok()) *reply = *list;
      reactor->Finish(ToGrpcStatus(list.status()));
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* CancelSession(grpc::CallbackServerContext* context,
                                          const v1::CancelSessionRequest* request,
                                          v1::CancelSessionReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (request->session() == 0 || request->reason().size() > kReasonBytesMax) {
      reactor->Finish(ToGrpcStatus(MakeFailure(
          FailureKind::kInvalidRequest,
          "cancel session: the session is missing, or the reason is longer than 200 bytes")));
      return reactor;
    }
    streams_->events->OnCancelSession(
        SessionId(request->session()),
        request->reason().empty() ? "an operator cancelled it" : request->reason(),
        [reactor, reply](const absl::StatusOr<v1::CancelSessionReply>& standing) {
          if (standing.ok()) *reply = *standing;
          reactor->Finish(ToGrpcStatus(standing.status()));
        });
    return reactor;
  }

  grpc::ServerUnaryReactor* ListRecords(grpc::CallbackServerContext* context,
                                        const v1::ListRecordsRequest* request,
                                        v1::RecordList* reply) override {
    return AnswerFromStore(streams_->events, context, reply,
                           [asked = *request](Store& store) { return RecordsOf(store, asked); });
  }

  grpc::ServerWriteReactor<v1::LedgerRecord>* ExportRecords(
      grpc::CallbackServerContext*, const v1::ListRecordsRequest* request) override {
    return new LedgerExport(streams_->events, *request);  // Deletes itself in OnDone.
  }

  grpc::ServerUnaryReactor* VerifyLedger(grpc::CallbackServerContext* context,
                                         const v1::VerifyLedgerRequest*,
                                         v1::LedgerVerdict* reply) override {
    return AnswerFromStore(streams_->events, context, reply,
                           [](Store& store) -> absl::StatusOr<v1::LedgerVerdict> {
                             SL_ASSIGN_OR_RETURN(const LedgerVerdict verdict, store.VerifyLedger());
                             return ToProto(verdict);
                           });
  }

 private:
  const std::shared_ptr<Streams> streams_;
};

AdminService::AdminService(AdminEvents* events)
    : streams_(std::make_shared<Streams>(events)), service_(std::make_unique<Service>(streams_)) {}

AdminService::~AdminService() = default;

void AdminService::Send(LoadStreamId stream, v1::LoadModelEvent event) {
  const std::shared_ptr<Streams::Outbox> outbox = streams_->Find(stream);
  // A refusal drops this event alone; the operator is told the end in any case.
  if (outbox != nullptr) static_cast<void>(outbox->Send(std::move(event)));
}

void AdminService::End(LoadStreamId stream, const absl::Status& status) {
  const std::shared_ptr<Streams::Outbox> outbox = streams_->Find(stream);
  if (outbox != nullptr) outbox->End(ToGrpcStatus(status));
}

grpc::Service* AdminService::service() { return service_.get(); }

}  // namespace shardline
