#include "node/transport/node_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "node/transport/channel.h"
#include "proto/wire/grpc_callback_queue.h"

namespace shardline {
namespace {

// Dialling faster than this is refused by the transport; our own peers ping every kKeepaliveMs.
constexpr int kPingIntervalMinMs = kKeepaliveMs / 4;

void SetLimits(grpc::ServerBuilder& builder, const LinkLimits& limits) {
  builder.SetMaxReceiveMessageSize(
      static_cast<int>(limits.payload_bytes_max + 2 * kFrameHeaderBytesMax));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kPingIntervalMinMs);
}

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return MakeFailure(FailureKind::kInvalidRequest,
                     absl::StrCat("listen: cannot listen on ", address, ": ", why));
}

// Binds and lets go: gRPC itself says only that something failed.
absl::Status TryToBind(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return CannotListen(address, "not host:port");
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = address.substr(colon + 1);
  const int error =
      getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return CannotListen(address, gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return CannotListen(address, std::strerror(errno));
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const int bound = bind(fd, found->ai_addr, found->ai_addrlen);
  const std::string why = bound == 0 ? "" : std::strerror(errno);
  close(fd);
  return bound == 0 ? absl::OkStatus() : CannotListen(address, why);
}

}  // namespace

struct NodeServer::State {
  std::unique_ptr<grpc::Service> shard_service;
  std::unique_ptr<grpc::Service> head_service;
  std::string address;
  std::unique_ptr<grpc::Server> server;  // Goes before the services.
};

absl::StatusOr<std::unique_ptr<NodeServer>> NodeServer::Start(const std::string& address,
                                                              ShardEvents shard_events,
                                                              HeadEvents head_events,
                                                              const LinkLimits& limits,
                                                              const LinkWindow& window) {
  SL_RETURN_IF_ERROR(TryToBind(address));
  KeepCallbackQueue();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto state = std::make_unique<State>();
  state->shard_service = MakeShardService(std::move(shard_events), limits, window);
  state->head_service = MakeHeadService(std::move(head_events));
  grpc::ServerBuilder builder;
  SetLimits(builder, limits);
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(state->shard_service.get());
  builder.RegisterService(state->head_service.get());
  state->server = builder.BuildAndStart();
  if (state->server == nullptr || port == 0) {
    return CannotListen(address, "the server did not start");
  }
  state->address = absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
  state->server->GetHealthCheckService()->SetServingStatus(kLivenessService, true);
  state->server->GetHealthCheckService()->SetServingStatus(kNodeService, false);
  return std::unique_ptr<NodeServer>(new NodeServer(std::move(state)));
}

NodeServer::NodeServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

NodeServer::~NodeServer() { Shutdown(absl::ZeroDuration()); }

const std::string& NodeServer::address() const { return state_->address; }

void NodeServer::SetServing(const char* service, bool serving) {
  state_->server->GetHealthCheckService()->SetServingStatus(service, serving);
}

void NodeServer::Shutdown(absl::Duration timeout) {
  state_->server->GetHealthCheckService()->Shutdown();
  state_->server->Shutdown(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_micros(absl::ToInt64Microseconds(timeout), GPR_TIMESPAN)));
}

}  // namespace shardline
