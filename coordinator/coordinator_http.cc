// The HTTP listener: what of the options it needs, and who stands behind it.

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "coordinator/coordinator.h"
#include "coordinator/gateway/access.h"

namespace shardline {
namespace {

GatewayOptions GatewayOptionsOf(const CoordinatorOptions& options) {
  GatewayOptions out;
  out.access.loopback = IsLoopbackListener(options.http);
  out.access.cors_origins = absl::StrSplit(options.cors_origins, ',', absl::SkipWhitespace());
  out.ping_interval = options.http_ping;
  out.return_grace = options.http_return;
  out.events_queued_max = static_cast<size_t>(options.client_events_max);
  return out;
}

}  // namespace

absl::Status Coordinator::ServeHttp() {
  SL_RETURN_IF_ERROR(
      CheckExposure(options_.http, !options_.api_keys.empty(), options_.http_insecure));
  std::string chat_template;
  if (!options_.chat_template.empty()) {
    SL_ASSIGN_OR_RETURN(chat_template, ReadChatTemplate(options_.chat_template));
  }
  if (!options_.api_keys.empty()) {
    SL_ASSIGN_OR_RETURN(api_keys_, ApiKeyFile::Open(options_.api_keys, clock_));
  }
  const int64_t since_unix_s = absl::ToUnixSeconds(absl::Now());  // For people.
  served_ = std::make_unique<ServedModels>(&models_, std::move(chat_template), since_unix_s);
  admin_http_ = std::make_unique<AdminHttp>(
      AdminHttp::World{.events = this, .log = &events_, .requests = &requests_, .clock = clock_});
  gateway_ = std::make_unique<Gateway>(
      Gateway::World{
          .clock = clock_,
          .clients = this,
          .admin = this,
          .models = served_.get(),
          .requests = &requests_,
          .keys = api_keys_.get(),
          .other_paths =
              [admin = admin_http_.get()](const std::shared_ptr<HttpExchange>& exchange) {
                return admin->Handle(exchange);
              }},
      GatewayOptionsOf(options_));
  SL_ASSIGN_OR_RETURN(http_, HttpServer::Start({.listen = options_.http,
                                                .connections_max = options_.http_connections,
                                                .tls_certificate = options_.tls_certificate,
                                                .tls_key = options_.tls_key},
                                               gateway_.get()));
  LogInfo("http", {{"listen", options_.http},
                   {"port", http_->port()},
                   {"tls", !options_.tls_certificate.empty()},
                   {"keys", api_keys_ != nullptr}});
  return absl::OkStatus();
}

// Streams have had their ends; whoever still reads gets them, and is hung up on then.
void Coordinator::StopHttp(absl::Duration limit) {
  if (admin_http_ != nullptr) admin_http_->Stop();
  if (http_ != nullptr) http_->Shutdown(limit);
  if (gateway_ != nullptr) gateway_->Stop();
}

}  // namespace shardline
