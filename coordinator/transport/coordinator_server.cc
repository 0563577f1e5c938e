#include "coordinator/transport/coordinator_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/wire/grpc_callback_queue.h"
#include "proto/wire/grpc_deadline.h"

namespace shardline {
namespace {

constexpr int kKeepaliveMs = 10'000;
constexpr int kPingIntervalMinMs = 5'000;
constexpr int kMessageBytesMax = 16 << 20;  // A prompt of a million ids fits.

}  // namespace

struct CoordinatorServer::State {
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    const std::string& address, const std::vector<grpc::Service*>& services) {
  KeepCallbackQueue();
  // Both are process-wide switches of gRPC, and idempotent.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  auto state = std::make_unique<State>();
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &state->port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // A second coordinator is told.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kPingIntervalMinMs);
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  for (grpc::Service* service : services) builder.RegisterService(service);
  state->server = builder.BuildAndStart();
  if (state->server == nullptr || state->port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address,
                     ": the port is taken or the address is not of this machine; --listen names "
                     "another"));
  }
  state->server->GetHealthCheckService()->SetServingStatus(kLivenessService, true);
  state->server->GetHealthCheckService()->SetServingStatus(kCoordinatorService, false);
  return std::unique_ptr<CoordinatorServer>(new CoordinatorServer(std::move(state)));
}

CoordinatorServer::CoordinatorServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

CoordinatorServer::~CoordinatorServer() { Shutdown(absl::ZeroDuration()); }

int CoordinatorServer::port() const { return state_->port; }

void CoordinatorServer::SetReady(bool ready) {
  state_->server->GetHealthCheckService()->SetServingStatus(kCoordinatorService, ready);
}

void CoordinatorServer::Shutdown(absl::Duration drain) {
  state_->server->Shutdown(GrpcDeadline(drain));
  state_->server->Wait();
}

}  // namespace shardline
