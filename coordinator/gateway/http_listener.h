#pragma once

// Where the HTTP server listens, and who it says it is.

#include <optional>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>

#include "absl/status/status.h"
#include "coordinator/gateway/http_server.h"

namespace shardline {

// Opens `acceptor` on "host:port"; "[::1]:0" as well. Fails with one line that names the address.
absl::Status ListenOn(boost::asio::ip::tcp::acceptor& acceptor, const std::string& listen);

// Fills `tls` if `options` name a certificate. TLS 1.2 and later, HTTP/1.1 by ALPN. Fails with one
// line that names the file.
absl::Status LoadCertificate(const HttpServerOptions& options,
                             std::optional<boost::asio::ssl::context>& tls);

}  // namespace shardline
