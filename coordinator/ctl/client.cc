#include "coordinator/ctl/client.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "base/failure.h"
#include "proto/wire/failure_conversion.h"
#include "proto/wire/grpc_deadline.h"
#include "shardline/v1/admin.grpc.pb.h"
#include "shardline/v1/inference.grpc.pb.h"

namespace shardline {
namespace {

void SetTimeout(absl::Duration timeout, grpc::ClientContext& context) {
  context.set_deadline(GrpcDeadline(timeout));
}

}  // namespace

struct CtlClient::Stubs {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Admin::Stub> admin;
  std::unique_ptr<v1::Inference::Stub> inference;
};

CtlClient::CtlClient(const std::string& endpoint) : stubs_(std::make_unique<Stubs>()) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  stubs_->channel = grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), args);
  stubs_->admin = v1::Admin::NewStub(stubs_->channel);
  stubs_->inference = v1::Inference::NewStub(stubs_->channel);
}

CtlClient::~CtlClient() = default;

absl::StatusOr<v1::ClusterStatus> CtlClient::GetStatus(absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  v1::ClusterStatus reply;
  const grpc::Status status = stubs_->admin->GetStatus(&context, {}, &reply);
  if (!status.ok()) return FromGrpcStatus(status);
  return reply;
}

absl::StatusOr<v1::NodeList> CtlClient::ListNodes(absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  v1::NodeList reply;
  const grpc::Status status = stubs_->admin->ListNodes(&context, {}, &reply);
  if (!status.ok()) return FromGrpcStatus(status);
  return reply;
}

absl::StatusOr<v1::ModelList> CtlClient::ListModels(absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  v1::ModelList reply;
  const grpc::Status status = stubs_->admin->ListModels(&context, {}, &reply);
  if (!status.ok()) return FromGrpcStatus(status);
  return reply;
}

absl::StatusOr<v1::ShardList> CtlClient::ListShards(const std::string& model,
                                                    absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  v1::ListShardsRequest request;
  request.set_model(model);
  v1::ShardList reply;
  const grpc::Status status = stubs_->admin->ListShards(&context, request, &reply);
  if (!status.ok()) return FromGrpcStatus(status);
  return reply;
}

absl::Status CtlClient::UnloadModel(const std::string& name, absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  v1::UnloadModelRequest request;
  request.set_name(name);
  v1::UnloadModelReply reply;
  return FromGrpcStatus(stubs_->admin->UnloadModel(&context, request, &reply));
}

absl::Status CtlClient::LoadModel(const v1::LoadModelRequest& request, absl::Duration timeout,
                                  const std::function<void(const v1::LoadModelEvent&)>& on_event) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  const auto reader = stubs_->admin->LoadModel(&context, request);
  v1::LoadModelEvent event;
  while (reader->Read(&event)) on_event(event);
  return FromGrpcStatus(reader->Finish());
}

absl::Status CtlClient::Generate(const v1::GenerateRequest& request, absl::Duration timeout,
                                 const std::function<void(const v1::GenerateEvent&)>& on_event) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  const auto reader = stubs_->inference->Generate(&context, request);
  v1::GenerateEvent event;
  bool ended = false;
  while (reader->Read(&event)) {
    ended = event.has_end();
    on_event(event);
  }
  const absl::Status status = FromGrpcStatus(reader->Finish());
  if (status.ok() && !ended) {
    return MakeFailure(FailureKind::kStreamReset, "the stream ended without an end");
  }
  return status;
}

absl::StatusOr<v1::NodeSummary> CtlClient::CordonNode(const std::string& node, bool cordon,
                                                      absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  v1::NodeSummary reply;
  grpc::Status status;
  if (cordon) {
    v1::CordonNodeRequest request;
    request.set_node_id(node);
    status = stubs_->admin->CordonNode(&context, request, &reply);
  } else {
    v1::UncordonNodeRequest request;
    request.set_node_id(node);
    status = stubs_->admin->UncordonNode(&context, request, &reply);
  }
  if (!status.ok()) return FromGrpcStatus(status);
  return reply;
}

absl::StatusOr<v1::NodeSummary> CtlClient::RemoveNode(const std::string& node,
                                                      absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  v1::RemoveNodeRequest request;
  request.set_node_id(node);
  v1::NodeSummary reply;
  const grpc::Status status = stubs_->admin->RemoveNode(&context, request, &reply);
  if (!status.ok()) return FromGrpcStatus(status);
  return reply;
}

absl::StatusOr<v1::ModelPreview> CtlClient::PreviewModel(const v1::LoadModelRequest& load,
                                                         absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  v1::PreviewModelRequest request;
  *request.mutable_load() = load;
  v1::ModelPreview reply;
  const grpc::Status status = stubs_->admin->PreviewModel(&context, request, &reply);
  if (!status.ok()) return FromGrpcStatus(status);
  return reply;
}

absl::StatusOr<v1::NodeSummary> CtlClient::DrainNode(const v1::DrainNodeRequest& request,
                                                     absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  v1::NodeSummary reply;
  const grpc::Status status = stubs_->admin->DrainNode(&context, request, &reply);
  if (!status.ok()) return FromGrpcStatus(status);
  return reply;
}

absl::StatusOr<v1::SessionList> CtlClient::ListSessions(absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  v1::SessionList reply;
  const grpc::Status status = stubs_->admin->ListSessions(&context, {}, &reply);
  if (!status.ok()) return FromGrpcStatus(status);
  return reply;
}

absl::StatusOr<v1::CancelSessionReply> CtlClient::CancelSession(
    const v1::CancelSessionRequest& request, absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  v1::CancelSessionReply reply;
  const grpc::Status status = stubs_->admin->CancelSession(&context, request, &reply);
  if (!status.ok()) return FromGrpcStatus(status);
  return reply;
}

absl::StatusOr<v1::RecordList> CtlClient::ListRecords(const v1::ListRecordsRequest& request,
                                                      absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  v1::RecordList reply;
  const grpc::Status status = stubs_->admin->ListRecords(&context, request, &reply);
  if (!status.ok()) return FromGrpcStatus(status);
  return reply;
}

absl::Status CtlClient::ExportRecords(
    const v1::ListRecordsRequest& request, absl::Duration timeout,
    const std::function<void(const v1::LedgerRecord&)>& on_record) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  const auto reader = stubs_->admin->ExportRecords(&context, request);
  v1::LedgerRecord record;
  while (reader->Read(&record)) on_record(record);
  return FromGrpcStatus(reader->Finish());
}

absl::StatusOr<v1::LedgerVerdict> CtlClient::VerifyLedger(absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(timeout, context);
  v1::LedgerVerdict reply;
  const grpc::Status status = stubs_->admin->VerifyLedger(&context, {}, &reply);
  if (!status.ok()) return FromGrpcStatus(status);
  return reply;
}

absl::StatusOr<bool> CtlClient::IsServing(absl::Duration timeout) {
  // grpc.health.v1's messages by hand: the request's field 1 is the service's name, the reply's
  // field 1 is the status, and 1 is SERVING. Debian ships no generated code for them.
  constexpr char kService[] = "shardline.coordinator";
  std::string bytes = {'\x0a', static_cast<char>(sizeof(kService) - 1)};
  bytes += kService;
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer reply;

  grpc::ClientContext context;
  SetTimeout(timeout, context);
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(stubs_->channel);
  grpc::Status status;
  const auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) return FromGrpcStatus(status);
  grpc::Slice answer;
  if (!reply.DumpToSingleSlice(&answer).ok()) return false;
  return answer.size() == 2 && answer.begin()[0] == 0x08 && answer.begin()[1] == 1;
}

}  // namespace shardline
